/** The demonstration end to end, as a user runs it: real guests on whatever host this machine can have. */

import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { execa } from "execa";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type BuiltSources, buildSources } from "./engine/build-sources.js";

const MAIN = "engine/cli/main.ts";
const SOURCES = [MAIN, "engine/workers/worker.ts", "examples/adventure/index.ts"] as const;

/** From Ctrl-C to the end of the process. */
const INTERRUPT_LIMIT_MS = 5_000;

let built: BuiltSources;
let folder: string;
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  built = await buildSources(...SOURCES);
  folder = await mkdtemp(join(tmpdir(), "coppice-demo-"));
  // A runtime directory of its own, and with it a host of its own: some of these tests end it.
  env = { XDG_RUNTIME_DIR: folder, XDG_STATE_HOME: folder };
});

afterAll(async () => {
  await coppice("host", "stop");
  await built[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** Typed by what it does: execa's own type depends on the literal options. */
function coppice(...args: readonly string[]) {
  const options = { reject: false, env: { ...env } } as const;
  return execa(process.execPath, ["--enable-source-maps", built.path(MAIN), ...args], options);
}

interface Hosts {
  readonly hosts: readonly { readonly pid: number; readonly sessions: number | null }[];
}

async function runningHosts(): Promise<Hosts["hosts"]> {
  return (JSON.parse((await coppice("host", "status", "--json")).stdout) as Hosts).hosts;
}

async function untilExploring(child: ReturnType<typeof coppice>): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    child.stderr.on("data", (data: Buffer) => {
      if (/steps [1-9]/.test(String(data))) resolve();
    });
    child.on("exit", () => reject(new Error("the demo ended before it explored")));
  });
}

async function tree(name: string): Promise<string> {
  return await readFile(join(folder, name, "tree.json"), "utf8");
}

describe("coppice demo", () => {
  it("explores, compares, replays without a mismatch, and leaves what it promised", async () => {
    const json = join(folder, "summary.json");
    const { exitCode, stdout, stderr } = await coppice(
      ...["demo", "--steps", "200", "--seed", "3", "--workers", "1", "--json", json, "--out", join(folder, "one")],
    );
    expect(stderr).not.toContain("error:");
    expect(exitCode).toBe(0);
    expect(stdout).toContain("Replayed from the template");
    expect((await readdir(join(folder, "one"))).sort()).toEqual(
      ["ledger.sqlite", "map.svg", "summary.json", "trajectory.txt", "tree.json"].sort(),
    );
    const latency = { n: expect.any(Number), p50_us: expect.any(Number), p99_us: expect.any(Number) };
    expect(JSON.parse(await readFile(json, "utf8"))).toEqual({
      seed: 3,
      steps: 200,
      stepsPerSecond: expect.any(Number),
      goExplore: {
        cells: expect.any(Number),
        rooms: expect.any(Number),
        bestScore: expect.any(Number),
        depth: expect.any(Number),
      },
      random: { cells: expect.any(Number), rooms: expect.any(Number), bestScore: expect.any(Number) },
      checkpoints: { taken: expect.any(Number), pruned: expect.any(Number), hot: expect.any(Number) },
      latency: { fork: latency, park: latency, exec: latency },
      replay: { steps: expect.any(Number), mismatches: 0 },
    });
    expect(await readFile(join(folder, "one", "map.svg"), "utf8")).toMatch(/^<svg|^<\?xml/);
  });

  it("gives the same tree, byte for byte, for the same seed and more workers (invariant 7)", async () => {
    const { exitCode } = await coppice(
      ...["demo", "--steps", "200", "--seed", "3", "--workers", "2", "--out", join(folder, "two")],
    );
    expect(exitCode).toBe(0);
    expect(await tree("two")).toBe(await tree("one"));
  });

  it("ends within five seconds of Ctrl-C with 130, and leaves no host and no temporary file", async () => {
    const out = join(folder, "interrupted");
    const child = coppice("demo", "--steps", "100000", "--out", out);
    await untilExploring(child);
    const begin = performance.now();
    child.kill("SIGINT");
    const { exitCode } = await child;
    expect(performance.now() - begin).toBeLessThan(INTERRUPT_LIMIT_MS);
    expect(exitCode).toBe(130);
    expect(await runningHosts()).toEqual([]);
    expect(await readdir(out)).toEqual(["ledger.sqlite"]);
  });

  it("that is killed leaves nothing in the way of the next one (invariant 5)", async () => {
    const child = coppice("demo", "--steps", "100000", "--out", join(folder, "killed"));
    await untilExploring(child);
    child.kill("SIGKILL");
    await child;
    const { exitCode } = await coppice("demo", "--steps", "20", "--out", join(folder, "after-kill"));
    expect(exitCode).toBe(0);
    expect((await runningHosts()).map(({ sessions }) => sessions)).toEqual([0]);
  });

  it("whose host is killed fails with a clear message, and the next one starts a new host", async () => {
    const child = coppice("demo", "--steps", "100000", "--out", join(folder, "hostless"));
    await untilExploring(child);
    for (const { pid } of await runningHosts()) process.kill(pid, "SIGKILL");
    const { exitCode, stderr } = await child;
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/error: .*(TRIAL_LOST|HOST_LOST)/);
    const { exitCode: next } = await coppice("demo", "--steps", "20", "--out", join(folder, "after-host"));
    expect(next).toBe(0);
  });
});
