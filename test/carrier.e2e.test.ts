/** The life of an emulated host: one for all processes, and nothing left of it however it ends. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type CarrierOptions, carrierStatus, ensureCarrier, stopCarrier } from "../sandbox-pool/carrier/index.js";
import { type CoppiceError, connectHost, type Sandbox } from "../sandbox-pool/index.js";
import { type BuiltSources, buildSources } from "./engine/build-sources.js";

const MODULE = "sandbox-pool/carrier/index.ts";

const SMALL: CarrierOptions = { memoryMiB: 512, idleSeconds: 600 };

/** Against hangs only. */
const LIMIT = { timeout: 120_000, interval: 20 };

let built: BuiltSources;
let folder: string;

beforeAll(async () => {
  built = await buildSources(MODULE);
  // A runtime directory of its own, and with it carriers of its own.
  folder = await mkdtemp(join(tmpdir(), "coppice-carrier-"));
  vi.stubEnv("XDG_RUNTIME_DIR", folder);
  vi.stubEnv("XDG_STATE_HOME", join(folder, "state"));
});

afterEach(async () => {
  await stopCarrier();
});

afterAll(async () => {
  vi.unstubAllEnvs();
  await built[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

interface User {
  readonly process: ChildProcess;
  /** Once it has the carrier. */
  readonly carrier: Promise<{ readonly pid: number; readonly started: boolean }>;
  /** Gives the carrier back, with the wish that it ends unless it is used. */
  leave(): Promise<void>;
}

/** Another process that uses the carrier until it is told to leave. */
function user(): User {
  const script = `
    const { ensureCarrier } = await import(${JSON.stringify(built.url(MODULE))});
    const carrier = await ensureCarrier(${JSON.stringify(SMALL)});
    console.log(JSON.stringify({ pid: carrier.pid, started: carrier.started }));
    for await (const _ of process.stdin);
    await carrier.release({ stopIfUnused: true });
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const carrier = lines.next().then((line) => JSON.parse(line.value ?? "null") as { pid: number; started: boolean });
  return {
    process: child,
    carrier,
    leave: async () => {
      const exit = once(child, "exit");
      child.stdin.end();
      expect(await exit).toEqual([0, null]);
    },
  };
}

/** All that is in the runtime directory: locks, and directories of carriers, whether they run or not. */
function files(): readonly string[] {
  return readdirSync(join(folder, "coppice"));
}

function directories(): readonly string[] {
  return files().filter((name) => name.startsWith("carrier-"));
}

/** QEMUs and keepers of these tests, found by the directory that is in their arguments. */
function programs(): readonly { readonly pid: number; readonly name: string }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      const [program = "", ...args] = readText(`/proc/${pid}/cmdline`).split("\0");
      const name = program.slice(program.lastIndexOf("/") + 1);
      const isOurs = /^(qemu-system|coppice-keeper)/.test(name) && args.some((arg) => arg.includes(folder));
      return isOurs ? [{ pid: Number(pid), name }] : [];
    });
}

function pidOf(name: "qemu-system-x86_64" | "coppice-keeper"): number | undefined {
  return programs().find((program) => program.name === name)?.pid;
}

function readText(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

async function untilNothingRuns(): Promise<void> {
  await vi.waitFor(() => expect(programs()).toEqual([]), LIMIT);
}

async function untilQemuRuns(): Promise<number> {
  return await vi.waitFor(() => {
    const pid = pidOf("qemu-system-x86_64");
    if (pid === undefined) throw new Error("no QEMU yet");
    return pid;
  }, LIMIT);
}

describe("processes that need a carrier at the same moment", () => {
  it("end with one, which lives as long as one of them does", async () => {
    expect(await carrierStatus()).toEqual([]);
    const users = [user(), user()] as const;
    // Who only asks how it is, while it boots, does no harm.
    await untilQemuRuns();
    const [booting] = await vi.waitFor(async () => {
      const found = await carrierStatus();
      expect(found).toHaveLength(1);
      return found;
    }, LIMIT);
    const carriers = await Promise.all(users.map((one) => one.carrier));
    expect(carriers[0]?.pid).toBe(booting?.pid);
    expect(carriers.map((carrier) => carrier.started).sort()).toEqual([false, true]);
    const pid = carriers[0]?.pid;
    expect(carriers[1]?.pid).toBe(pid);
    expect(pidOf("coppice-keeper")).toBe(pid);
    expect(programs().length).toBe(2);
    expect(files()).toHaveLength(1);
    const status = { kind: "carrier", instance: 0, memoryMiB: 512, pid, users: 2, sessions: 0 };
    await vi.waitFor(async () => expect(await carrierStatus()).toMatchObject([status]), LIMIT);

    await users[0].leave();
    expect(await carrierStatus()).toMatchObject([{ ...status, users: 1 }]);

    await users[1].leave();
    expect(await carrierStatus()).toEqual([]);
    expect(programs()).toEqual([]);
    expect(files()).toEqual([]);
  });
});

describe("a carrier", () => {
  it("whose QEMU was killed is found dead, leaves nothing, and the next start works", async () => {
    const first = await ensureCarrier(SMALL);
    expect(await carrierStatus()).toMatchObject([{ pid: first.pid, users: 1, sessions: 0 }]);
    process.kill(await untilQemuRuns(), "SIGKILL");
    await untilNothingRuns();
    expect(await carrierStatus()).toEqual([]);
    expect(files()).toEqual([]);

    const second = await ensureCarrier(SMALL);
    expect(second).toMatchObject({ started: true });
    expect(second.pid).not.toBe(first.pid);
    // Of a carrier that has ended, nobody has to know.
    await first.release({ stopIfUnused: true });
    expect(await carrierStatus()).toMatchObject([{ pid: second.pid, users: 1, sessions: 0 }]);
  });

  it("whose keeper was killed dies with it, and the next start removes its rests and works", async () => {
    const first = await ensureCarrier(SMALL);
    process.kill(first.pid, "SIGKILL");
    await untilNothingRuns();
    expect(await carrierStatus()).toEqual([]);
    const rests = directories();
    expect(rests.length).toBe(1);

    const second = await ensureCarrier(SMALL);
    expect(second).toMatchObject({ started: true });
    expect(directories()).toHaveLength(1);
    expect(directories()).not.toEqual(rests);

    // A later call in the same process finds it; each counts as a user until it is released.
    const again = await ensureCarrier(SMALL);
    expect(again).toMatchObject({ started: false, pid: second.pid });
    await again.release();
    await again.release();
    expect(await carrierStatus()).toMatchObject([{ pid: second.pid, users: 1, sessions: 0 }]);
  });

  it("that is stopped ends though it is used, and its directory is gone", async () => {
    const carrier = await ensureCarrier(SMALL);
    expect(await stopCarrier()).toBe(1);
    expect(programs()).toEqual([]);
    expect(directories()).toEqual([]);
    expect(await carrierStatus()).toEqual([]);
    expect(files()).toEqual([]);
    // Its words outlive it.
    expect(carrier.console()).toContain("coppiced: listening on ");
    expect(await stopCarrier()).toBe(0);
    await carrier.release();
  });

  it("whose start is aborted while it boots leaves no QEMU and no files", async () => {
    const controller = new AbortController();
    const starting = ensureCarrier({ ...SMALL, signal: controller.signal });
    await Promise.race([untilQemuRuns(), starting]);
    controller.abort();
    await expect(starting).rejects.toMatchObject({ code: "ABORTED" });
    expect(programs()).toEqual([]);
    expect(files()).toEqual([]);
    expect(await carrierStatus()).toEqual([]);
  });

  it("whose starter is killed while it boots ends by itself", async () => {
    const { process: starter, carrier } = user();
    carrier.catch(() => {});
    await untilQemuRuns();
    starter.kill("SIGKILL");
    await untilNothingRuns();
    expect(await carrierStatus()).toEqual([]);
    expect(directories()).toEqual([]);
  });
});

describe("too little memory", () => {
  it("refuses forks typed, and leaves the host and its checkpoints, whatever becomes of the guests", async () => {
    vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", "640");
    await using host = await connectHost({ kind: "carrier", pool: { maxReady: 0 } });
    const image = await host.images.build({ debian: {} });
    const template = await host.templates.create(image, { memoryMiB: 128 });
    const take = (sandbox: Sandbox, mib: number): Promise<unknown> =>
      sandbox.exec(["/bin/sh", "-c", `dd if=/dev/zero of=/dev/shm/taken bs=1M count=${mib} 2>/dev/null`], {
        deadlineMs: 100_000,
      });

    // Each takes its share after it was admitted, so that what is admitted is soon more than there is.
    const codes = new Set<string>();
    const living: Sandbox[] = [];
    for (let round = 0; round < 4; round += 1) {
      for (const child of await template.fork(8, { deadlineMs: 60_000 })) {
        if (child.ok) living.push(child.sandbox);
        else codes.add((child.error as CoppiceError).code);
      }
      const taken = await Promise.allSettled(living.map((sandbox) => take(sandbox, 24)));
      for (const one of taken) if (one.status === "rejected") codes.add((one.reason as CoppiceError).code);
    }
    expect([...codes]).toContain("HOST_FULL");
    // A host without memory is also slow.
    for (const code of codes) expect(["HOST_FULL", "SANDBOX_LOST", "DEADLINE_EXCEEDED"]).toContain(code);

    await Promise.all(living.map((sandbox) => sandbox.close()));
    await using after = await template.fork();
    expect(await after.exec(["/bin/echo", "still here"])).toMatchObject({ stdout: "still here\n" });
  });

  it("whose VMM the kernel kills is lost alone, with a typed error, and its siblings go on (invariant 10)", async () => {
    vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", "768");
    await using host = await connectHost({ kind: "carrier", pool: { maxReady: 0 } });
    const image = await host.images.build({ debian: {} });
    const template = await host.templates.create(image, { memoryMiB: 448 });
    const children = (await template.fork(5, { deadlineMs: 60_000 })).map((child) => {
      if (!child.ok) throw child.error;
      return child.sandbox;
    });
    const [quiet, ...greedy] = children;
    // Each holds as much as it may, which is together more than the host has: SIGKILL for one of them at least.
    const held = await Promise.allSettled(
      greedy.map((sandbox) =>
        sandbox.exec(["/bin/sh", "-c", "head -c 260000000 /dev/zero | tail -c 260000000 | wc -c"], {
          timeoutMs: 100_000,
        }),
      ),
    );
    const lost = held.flatMap((one) => (one.status === "rejected" ? [one.reason as CoppiceError] : []));
    expect(lost.length).toBeGreaterThan(0);
    for (const error of lost) {
      expect(error).toMatchObject({ code: "SANDBOX_LOST", faultDomain: "host", retryable: true });
      expect(error.message).toContain("SIGKILL");
    }
    expect(await quiet?.exec(["/bin/echo", "still here"])).toMatchObject({ stdout: "still here\n" });
    await Promise.all(children.map((sandbox) => sandbox.close()));
    await using after = await template.fork();
    expect(await after.exec(["/bin/echo", "as before"])).toMatchObject({ stdout: "as before\n" });
    expect((await host.stats()).sandboxes).toMatchObject({ leased: 1, ready: 0, poisoned: 0 });
  });
});
