/** What only shows after many lives, or after a long wait: nothing is left behind, nothing is lost, no time is missed. */

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/** Lives of one template; COPPICE_CHURN for a soak. */
const LIVES = Number(process.env["COPPICE_CHURN"] ?? 200);
const LIMIT_MS = 300_000 + LIVES * 5_000;
const MIB = 1024 * 1024;

/** The variable lives in the shell's memory and nowhere else. */
const SHELL = ["/bin/sh", "-c", "stty -echo; PS1='> ' exec /bin/sh -i"];

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  // Nothing waits ahead: what is there is what this test has made.
  host = await connectHost({ onProgress: (message) => console.error(message), pool: { maxReady: 0 } });
  template = await host.templates.create(await host.images.build({ debian: {} }), {
    key: "test/long-run.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      await (await sandbox.openPty(SHELL, { name: "shell" })).read().untilInput();
      await run(sandbox, "true");
    },
  });
});

afterAll(async () => {
  await host?.close();
});

async function run(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script]);
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function typed(sandbox: Sandbox, line: string): Promise<string> {
  return (await sandbox.pty("shell").send(`${line}\n`).untilInput()).text.replaceAll("\r", "");
}

interface Held {
  readonly processes: number;
  readonly descriptors: number;
  readonly daemonBytes: number;
  readonly usedBytes: number;
  readonly diskBytes: number;
}

async function held(): Promise<Held> {
  const text = await host.metrics();
  const metric = (name: string): number => {
    const value = new RegExp(`^${name} (\\S+)$`, "mu").exec(text)?.[1];
    if (value === undefined) throw new Error(`no metric ${name}`);
    return Number(value);
  };
  const { memory, disk } = await host.stats();
  return {
    processes: metric("coppice_vmm_processes"),
    descriptors: metric("process_open_fds"),
    daemonBytes: metric("process_resident_memory_bytes"),
    usedBytes: memory.totalBytes - memory.availableBytes,
    diskBytes: disk.totalBytes - disk.availableBytes,
  };
}

/** When every process is that of a sandbox or checkpoint: what was closed before ends a moment later. */
async function settled(): Promise<Held> {
  return await vi.waitFor(
    async () => {
      const now = await held();
      const { sandboxes, checkpoints } = await host.inventory();
      expect(now.processes).toBe(sandboxes.length + checkpoints.length);
      return now;
    },
    { timeout: 60_000, interval: 200 },
  );
}

/** Not one process or descriptor more; memory and disk but for what a leak of each life would soon be above. */
async function expectNothingLeft(before: Held): Promise<void> {
  await vi.waitFor(
    async () => {
      const after = await settled();
      expect(after.processes).toBeLessThanOrEqual(before.processes);
      expect(after.descriptors).toBeLessThanOrEqual(before.descriptors);
      expect(after.diskBytes - before.diskBytes).toBeLessThan(MIB);
      expect(after.daemonBytes - before.daemonBytes).toBeLessThan(16 * MIB);
      expect(after.usedBytes - before.usedBytes).toBeLessThan(64 * MIB);
    },
    { timeout: 120_000, interval: 200 },
  );
}

/** One life that uses memory, disk and a program. */
async function live(sandbox: Sandbox, number: number): Promise<void> {
  await sandbox.files.write("/srv/number", `${number}\n`);
  expect(await typed(sandbox, `N=${number}; cat /srv/number`)).toBe(`${number}\n> `);
}

describe("after many lives the host holds what it held before (invariant 5, B17)", { timeout: LIMIT_MS }, () => {
  it("of forks that are closed", async () => {
    for (let life = 0; life < 10; life += 1) {
      await using sandbox = await template.fork();
      await live(sandbox, life);
    }
    const before = await settled();
    for (let life = 0; life < LIVES; life += 1) {
      await using sandbox = await template.fork();
      if (life % 10 === 0) await live(sandbox, life);
      else await sandbox.ping();
    }
    await expectNothingLeft(before);
  });

  it("of one sandbox that is rewound again and again, and begins each time where the checkpoint was", async () => {
    await using sandbox = await template.fork();
    await live(sandbox, 0);
    await sandbox.rewind();
    const before = await settled();
    for (let life = 0; life < LIVES / 2; life += 1) {
      expect(await typed(sandbox, 'echo "N is [$N]"; cat /srv/number 2>/dev/null')).toBe("N is []\n> ");
      await live(sandbox, life);
      await sandbox.rewind();
    }
    await expectNothingLeft(before);
  });

  it("of checkpoints that are made both ways, forked, and dropped", async () => {
    const cycle = async (number: number): Promise<void> => {
      const source = await template.fork();
      await live(source, number);
      await using copied = await source.checkpoint();
      await using parked = await source.park();
      for (const checkpoint of [copied, parked]) {
        await using child = await checkpoint.fork();
        expect(await typed(child, "echo $N")).toBe(`${number}\n> `);
      }
    };
    await cycle(0);
    const before = await settled();
    for (let number = 1; number <= LIVES / 10; number += 1) await cycle(number);
    await expectNothingLeft(before);
  });
});

describe("a checkpoint (B20)", { timeout: LIMIT_MS }, () => {
  it("has the same files and memory whichever way it was made, a moment after a thousand writes that nobody synced", async () => {
    const source = await template.fork();
    await typed(source, "N=before");
    const write = "cd /srv; i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $i > f$i; done; cat f* | md5sum";
    const sum = await run(source, write);
    await typed(source, "N=after");
    await using copied = await source.checkpoint();
    await using parked = await source.park();
    for (const checkpoint of [copied, parked]) {
      await using child = await checkpoint.fork();
      expect(await run(child, "cd /srv; ls f* | wc -l; cat f* | md5sum")).toBe(`1000\n${sum}`);
      expect(await typed(child, "echo $N")).toBe("after\n> ");
      await child.rewind();
      expect(await run(child, "cd /srv; cat f* | md5sum")).toBe(sum);
    }
  });
});

/** An RCU stall is reported after 21 s without progress: a guest that ran for less than this can have none of its own. */
const SURELY_NO_STALL_MS = 15_000;

describe("a guest that was busy when it was stopped for long (B02)", { timeout: LIMIT_MS }, () => {
  it("misses no time: its own clock stood still, and its kernel reports no stall", async () => {
    const stoppedMs = 6_000;
    const source = await template.fork();
    await run(
      source,
      "(while :; do :; done) </dev/null >/dev/null 2>&1 & (while :; do :; done) </dev/null >/dev/null 2>&1 &",
    );
    const uptime = async (sandbox: Sandbox): Promise<number> =>
      Number((await run(sandbox, "cat /proc/uptime")).split(" ")[0]) * 1_000;
    const begin = performance.now();
    const before = await uptime(source);
    await using parked = await source.park();
    await new Promise((resolve) => setTimeout(resolve, stoppedMs));
    await using child = await parked.fork();
    const after = await uptime(child);
    const ranMs = performance.now() - begin - stoppedMs;
    expect(after).toBeGreaterThanOrEqual(before);
    // It has had no more time than there was beside the stop.
    expect(after - before).toBeLessThan(ranMs + 500);
    for (let count = 0; count < 20; count += 1) await run(child, "true");
    if (performance.now() - begin - stoppedMs < SURELY_NO_STALL_MS) {
      expect(await run(child, "dmesg | grep -iE 'lockup|stall|hung|blocked for more' || true")).toBe("");
    }
  });
});
