/** Forks and closes without end: nothing may be left, and the last must be as quick as the first. */

import { connectHost, type Host } from "../../index.js";
import { firstReply, timed, warmTemplate } from "./measure.js";
import type { Scenario } from "./scenario.js";

/** What would grow with a leak, and the name of its metric. Memory and room for disks are what is available. */
const HELD = {
  processes: "coppice_vmm_processes",
  descriptors: "process_open_fds",
} as const;

type Held = { readonly [Name in keyof typeof HELD]: number } & {
  readonly daemonBytes: number;
  readonly usedBytes: number;
  readonly diskBytes: number;
};

async function held(host: Host): Promise<Held> {
  const text = await host.metrics();
  const value = (name: string): number => Number(new RegExp(`^${name} (\\S+)$`, "mu").exec(text)?.[1] ?? Number.NaN);
  const { memory, disk } = await host.stats();
  return {
    processes: value(HELD.processes),
    descriptors: value(HELD.descriptors),
    daemonBytes: value("process_resident_memory_bytes"),
    usedBytes: memory.totalBytes - memory.availableBytes,
    diskBytes: disk.totalBytes - disk.availableBytes,
  };
}

let before: Held | undefined;

export const churn: Scenario = {
  names: [
    "churn.cycle",
    "churn.fork.first",
    "churn.fork.last",
    "churn.left.processes",
    "churn.left.descriptors",
    "memory.churn.left.daemon",
    "memory.churn.left.host",
    "memory.churn.left.disk",
  ],
  about:
    "a fork on demand, its first reply, its close; `first`, `last`: the first and the last tenth; `left`: more at the end than at the start",
  every: 1,
  run: async (bench) => {
    const { host, record, round, rounds } = bench;
    const { id } = await warmTemplate(bench);
    await using unpooled = await connectHost({ join: host.address, pool: { maxReady: 0 } });
    if (round <= 0) before = await held(unpooled);
    const template = unpooled.checkpoints.get(id);
    const cycle = await timed(async () => {
      const { sandbox, microseconds } = await firstReply(() => template.fork());
      if (round < rounds / 10) record("churn.fork.first", microseconds, sandbox.stages);
      if (round >= rounds - rounds / 10) record("churn.fork.last", microseconds, sandbox.stages);
      await sandbox.close();
    });
    record("churn.cycle", cycle.microseconds);
    if (round === rounds - 1 && before !== undefined) {
      const after = await held(unpooled);
      record("churn.left.processes", after.processes - before.processes);
      record("churn.left.descriptors", after.descriptors - before.descriptors);
      record("memory.churn.left.daemon", after.daemonBytes - before.daemonBytes);
      record("memory.churn.left.host", after.usedBytes - before.usedBytes);
      record("memory.churn.left.disk", after.diskBytes - before.diskBytes);
    }
  },
};

export const CHURN_RATIO = { name: "churn.fork.last / churn.fork.first", a: "churn.fork.last", b: "churn.fork.first" };
