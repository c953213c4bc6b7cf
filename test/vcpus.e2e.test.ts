/** Guests with several CPUs: what runs on each of them goes on in every life, and their clocks are one. */

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/**
 * A process on each CPU, whose threads count under a lock. Each writes its turns, the latest time that it has seen, and how
 * often that was earlier than what another had seen before.
 */
const WORK = `
import mmap, os, struct, threading, time

FIELDS = struct.Struct("=QQQ")
cpus = sorted(os.sched_getaffinity(0))
with open("/dev/shm/work", "w+b") as file:
    file.truncate(FIELDS.size * len(cpus))
    memory = mmap.mmap(file.fileno(), FIELDS.size * len(cpus))

def work(place):
    os.sched_setaffinity(0, {cpus[place]})
    lock = threading.Lock()
    state = [0, 0]
    def turns():
        os.sched_setaffinity(0, {cpus[place]})
        while True:
            with lock:
                seen = max(FIELDS.unpack_from(memory, FIELDS.size * other)[1] for other in range(len(cpus)))
                now = time.monotonic_ns()
                state[0] += 1
                state[1] += now < seen
                FIELDS.pack_into(memory, FIELDS.size * place, state[0], now, state[1])
            time.sleep(0.05)
    for _ in range(2):
        threading.Thread(target=turns).start()

for place in range(len(cpus)):
    if os.fork() == 0:
        work(place)
        threading.Event().wait()
`;

const IMAGE = { debian: { packages: ["python3"] }, files: { "/srv/work.py": WORK } };

/** What a kernel says that did not get over a stop, or whose CPUs disagree. */
const COMPLAINTS = /soft lockup|unstable|BUG:/u;

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await templateWith(2);
});

afterAll(async () => {
  await host?.close();
});

async function templateWith(vcpus: number): Promise<Checkpoint> {
  return await host.templates.create(await host.images.build(IMAGE), {
    memoryMiB: 256,
    vcpus,
    key: "test/vcpus.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      await run(sandbox, "setsid python3 /srv/work.py >/srv/work.log 2>&1 &");
      await run(sandbox, "until test -s /dev/shm/work; do sleep 0.1; done");
      await expectAllCpus(sandbox, vcpus);
    },
  });
}

async function run(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], { timeoutMs: 60_000 });
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

interface Work {
  readonly turns: number;
  readonly backwards: number;
}

async function work(sandbox: Sandbox): Promise<readonly Work[]> {
  const text = await run(sandbox, "od -An -v -w24 -tu8 /dev/shm/work");
  return text
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/u).map(Number))
    .map(([turns = 0, , backwards = 0]) => ({ turns, backwards }));
}

/** All CPUs are there, take what is bound to them, and go on with what they had begun. */
async function expectAllCpus(sandbox: Sandbox, vcpus: number): Promise<void> {
  expect(await run(sandbox, "nproc")).toBe(`${vcpus}\n`);
  for (let cpu = 0; cpu < vcpus; cpu += 1) {
    const bound = await run(sandbox, `taskset -c ${cpu} cut -d' ' -f39 /proc/self/stat`);
    expect(bound).toBe(`${cpu}\n`);
  }
  const before = await work(sandbox);
  expect(before.length).toBe(vcpus);
  await vi.waitFor(
    async () => {
      const now = await work(sandbox);
      for (const [cpu, { turns }] of before.entries()) expect(now[cpu]?.turns).toBeGreaterThan(turns);
      for (const { backwards } of now) expect(backwards).toBe(0);
    },
    { timeout: 60_000, interval: 50 },
  );
  expect(await run(sandbox, "dmesg")).not.toMatch(COMPLAINTS);
}

describe("a guest with two CPUs", () => {
  it("that was forked goes on with both, and so do its siblings", async () => {
    const forks = await template.fork(3);
    for (const fork of forks) {
      if (!fork.ok) throw fork.error;
      await expectAllCpus(fork.sandbox, 2);
      await fork.sandbox.close();
    }
  });

  it("that waited in the pool goes on with both", async () => {
    host.pool.forecast(template.id, 1);
    await vi.waitFor(() => expect(host.pool.ready(template.id)).toBeGreaterThan(0), { timeout: 60_000 });
    const { hits } = host.pool.stats();
    await using sandbox = await template.fork();
    expect(host.pool.stats().hits).toBe(hits + 1);
    await expectAllCpus(sandbox, 2);
    host.pool.forecast(template.id, 0);
  });

  it("goes on with both after a checkpoint that it outlives, in what is forked from it, and after a park", async () => {
    const sandbox = await template.fork();
    await using live = await sandbox.checkpoint();
    await expectAllCpus(sandbox, 2);
    await using fromLive = await live.fork();
    await expectAllCpus(fromLive, 2);
    await using parked = await sandbox.park();
    await using fromParked = await parked.fork();
    await expectAllCpus(fromParked, 2);
  });

  it("that is rewound goes on with both from where it began", async () => {
    await using sandbox = await template.fork();
    await run(sandbox, "touch /srv/later");
    await sandbox.rewind();
    expect(await run(sandbox, "ls /srv")).not.toContain("later");
    await expectAllCpus(sandbox, 2);
  });
});

it("a guest with four CPUs goes on with all in a fork", async () => {
  const four = await templateWith(4);
  await using sandbox = await four.fork();
  await expectAllCpus(sandbox, 4);
});
