/** Limits of sandboxes end to end: what one takes too much costs itself, and nobody else. */

import { setTimeout as sleep } from "node:timers/promises";

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

const IMAGE = { debian: {}, files: { "/srv/hello.txt": "hello from the image\n" } };

/** Against hangs only. */
const LIMIT = { timeout: 120_000, interval: 50 };

const MIB = 1024 * 1024;

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message), pool: { maxReady: 0 } });
  template = await host.templates.create(await host.images.build(IMAGE), {
    key: "test/limits.e2e.test.ts",
    limits: { processes: 200, consoleBytesPerSecond: 256 },
  });
});

afterAll(async () => {
  await host?.close();
});

async function shell(sandbox: Sandbox, script: string): Promise<string> {
  const patience = { timeoutMs: LIMIT.timeout, deadlineMs: LIMIT.timeout };
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], patience);
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

/** Counts as fast as it can, and writes now and then how far it is. */
const COUNTER = "i=0; while :; do i=$((i+1)); [ $((i%500)) = 0 ] && echo $i > /run/count; done";

async function spin(sandbox: Sandbox): Promise<void> {
  await sandbox.exec(["/bin/sh", "-c", COUNTER], { background: true, name: "spin", deadlineMs: LIMIT.timeout });
}

async function counted(sandbox: Sandbox): Promise<number> {
  return Number(await shell(sandbox, "cat /run/count 2>/dev/null || echo 0"));
}

/** Only what a fork has that is leased; cgroups go a moment after their sandboxes. */
async function expectNoGroups(): Promise<void> {
  await vi.waitFor(async () => expect((await host.stats()).cgroups).toBe(0), LIMIT);
}

describe("memory", () => {
  it("above the limit ends that sandbox alone, and it was the guest's fault", async () => {
    const killed = (await host.stats()).counters.memoryLimitKills;
    await using neighbour = await template.fork();
    await using sandbox = await template.fork({ limits: { memoryMiB: 40 } });
    const hog = sandbox.exec(["/bin/sh", "-c", "head -c 120m /dev/zero > /dev/shm/hog; sleep 1000"], {
      timeoutMs: 100_000,
    });
    await expect(hog).rejects.toMatchObject({ code: "SANDBOX_LOST", faultDomain: "guest", poisons: true });
    expect((await host.stats()).counters.memoryLimitKills).toBe(killed + 1);
    expect(await shell(neighbour, "cat /srv/hello.txt")).toBe("hello from the image\n");
    await expectNoGroups();
  });

  it("within the limit is taken, and is inherited by forks of a checkpoint", async () => {
    await using sandbox = await template.fork({ limits: { memoryMiB: 64 } });
    await shell(sandbox, "head -c 10m /dev/zero > /run/some");
    await using checkpoint = await sandbox.park();
    await expectNoGroups();
    await using child = await checkpoint.fork();
    expect(await shell(child, "stat -c %s /run/some")).toBe(`${10 * MIB}\n`);
    await vi.waitFor(async () => {
      const { cgroups } = await host.stats();
      expect(cgroups).toBe(host.info.limits.memory === "cgroup2" ? 1 : 0);
    }, LIMIT);
    await expect(shell(child, "head -c 120m /dev/zero > /dev/shm/hog; sleep 1000")).rejects.toMatchObject({
      code: "SANDBOX_LOST",
      faultDomain: "guest",
    });
    await expectNoGroups();
  });
});

describe("the processors", () => {
  it("are shared by weight: one that spins does not starve its siblings", async () => {
    await using greedy = await template.fork({ limits: { cpuShare: 50 } });
    await using other = await template.fork({ limits: { cpuShare: 500 } });
    await Promise.all([spin(greedy), spin(other)]);
    await vi.waitFor(async () => expect(await counted(greedy)).toBeGreaterThan(0), LIMIT);
    await vi.waitFor(async () => expect(await counted(other)).toBeGreaterThan(0), LIMIT);
    const before = [await counted(greedy), await counted(other)] as const;
    await sleep(10_000);
    const ran = [(await counted(greedy)) - before[0], (await counted(other)) - before[1]] as const;
    // Ten to one by weight. Answering the questions takes its part, too.
    expect(ran[1]).toBeGreaterThan(3 * ran[0]);
  });

  it("are kept from one that has had its part", async ({ skip }) => {
    skip(host.info.limits.cpuMax === "none", "this host has no cgroups");
    await using sandbox = await template.fork();
    await spin(sandbox);
    const rate = async () => {
      const before = await counted(sandbox);
      await sleep(6_000);
      return (await counted(sandbox)) - before;
    };
    await vi.waitFor(async () => expect(await counted(sandbox)).toBeGreaterThan(0), LIMIT);
    const free = await rate();
    await sandbox.limit({ cpuMax: 0.1 });
    const held = await rate();
    expect(held).toBeLessThan(free / 2);
    expect(held).toBeGreaterThan(0);
    await sandbox.limit({});
    await expectNoGroups();
  });
});

describe("a guest", () => {
  it("has no more processes than it may", async () => {
    await using sandbox = await template.fork();
    expect(await shell(sandbox, "cat /proc/sys/kernel/threads-max")).toBe("200\n");
    const bomb = "for i in $(seq 400); do sleep 1000 & done 2>&1; true";
    const { stdout, stderr } = await sandbox.exec(["/bin/sh", "-c", bomb]);
    expect(stdout + stderr).toContain("Cannot fork");
    await using neighbour = await template.fork();
    expect(await shell(neighbour, "echo well")).toBe("well\n");
  });

  it("that writes its console without end is kept to its rate, with marks, and its last words", async () => {
    const dropped = (await host.stats()).counters.consoleDroppedBytes;
    await using neighbour = await template.fork();
    await using sandbox = await template.fork();
    // A minute and a half of what it may, and what it may at once.
    await shell(sandbox, `yes ${"x".repeat(99)} | head -c 40000 > /dev/ttyS0`);
    expect(await shell(neighbour, "echo well")).toBe("well\n");
    // They come when the rate allows for them and for the tail before them.
    await vi.waitFor(async () => {
      await shell(sandbox, "echo the last words > /dev/ttyS0; sleep 1");
      expect(await sandbox.console()).toContain("the last words");
    }, LIMIT);
    expect(await sandbox.console()).toMatch(/\[\d+ bytes of console output dropped\]/);
    expect((await host.stats()).counters.consoleDroppedBytes).toBeGreaterThan(dropped);
  });
});

describe("limits", () => {
  it("that make no sense are refused by the field's name", async () => {
    await expect(template.fork({ limits: { memoryMiB: 1 } })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("limits.memoryMiB"),
    });
    await using sandbox = await template.fork();
    // More than any machine of the tests has: only the daemon knows.
    await expect(sandbox.limit({ cpuMax: 1000 })).rejects.toMatchObject({
      code: expect.stringMatching(/INVALID_ARGUMENT|LIMIT_UNSUPPORTED/),
      message: expect.stringContaining("limits.cpuMax"),
    });
    expect(await shell(sandbox, "echo well")).toBe("well\n");
  });

  it("leave no cgroup behind, however many sandboxes come and go", async () => {
    for (let round = 0; round < 25; round++) {
      const forks = await template.fork(8, { limits: { memoryMiB: 64, cpuShare: 50 } });
      await Promise.all(forks.map(async (fork) => (fork.ok ? await fork.sandbox.close() : undefined)));
    }
    await expectNoGroups();
  });
});
