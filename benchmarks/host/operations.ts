/** What is measured, one scenario after the other; each ends at the first reply of a guest, as a client sees it. */

import { connectHost, type Stages } from "../../index.js";
import { alive } from "./alive.js";
import { CHURN_RATIO, churn } from "./churn.js";
import { FULL_MEMORY_RATIOS, fullMemory } from "./full-memory.js";
import { firstReply, MEMORY_MIB, settle, timed, warmTemplate } from "./measure.js";
import { patternTemplate, verify } from "./pattern.js";
import type { Scenario } from "./scenario.js";
import { LARGE_MIB, SIZE_RATIOS, SMALL_MIB, sized } from "./sizes.js";

/** Stages of the VMM during which the guest stands still. */
const VMM_PAUSE = new Set(["vmm.stop", "vmm.save", "vmm.count", "vmm.fork"]);

function paused(stages: Stages): number {
  return stages.filter(([name]) => VMM_PAUSE.has(name)).reduce((sum, [, microseconds]) => sum + microseconds, 0);
}

/** One life: handed out, used, checkpointed while it goes on, parked, forked again. */
const life: Scenario = {
  names: [
    "fork.pooled",
    "exec.ping",
    "exec.true.first",
    "exec.true",
    "checkpoint.live.pause",
    "checkpoint.live.total",
    "checkpoint.live.next",
    "checkpoint.park",
    "checkpoint.park.save",
    "fork.cold",
    "memory.idleChild.private",
    "memory.idleChild.total",
  ],
  about: "a child that ran ahead; its calls; a checkpoint while it goes on; park; a fork on demand",
  every: 1,
  run: async (bench) => {
    const { host, record } = bench;
    const template = await warmTemplate(bench);
    await settle(bench, template);
    const { hits } = host.pool.stats();
    const pooled = await firstReply(() => template.fork());
    const { sandbox } = pooled;
    if (host.pool.stats().hits === hits) throw new Error("the child that waited was not the one that was handed out");
    record("fork.pooled", pooled.microseconds, sandbox.stages);
    const { privateBytes, totalBytes } = await host.memoryUsage({ sandbox: sandbox.id });
    record("memory.idleChild.private", privateBytes);
    record("memory.idleChild.total", totalBytes);
    for (let round = 0; round < 3; round++) record("exec.ping", (await timed(() => sandbox.ping())).microseconds);
    const first = await timed(() => sandbox.exec(["/bin/true"]));
    record("exec.true.first", first.microseconds);
    record("exec.true", (await timed(() => sandbox.exec(["/bin/true"]))).microseconds);
    const live = await timed(() => sandbox.checkpoint());
    record("checkpoint.live.total", live.microseconds, live.result.stages);
    record("checkpoint.live.pause", paused(live.result.stages));
    record("checkpoint.live.next", (await timed(() => sandbox.ping())).microseconds);
    await live.result.release();
    const park = await timed(() => sandbox.park());
    record("checkpoint.park", park.microseconds, park.result.stages);
    record("checkpoint.park.save", paused(park.result.stages));
    const cold = await firstReply(() => park.result.fork());
    record("fork.cold", cold.microseconds, cold.sandbox.stages);
    await cold.sandbox.close();
    await park.result.release();
  },
};

const boot: Scenario = {
  names: ["boot.fresh"],
  about: "a guest from nothing: stock kernel, root file system, agent",
  // Often enough for an interval of the median in a run of 100 rounds.
  every: 16,
  run: async ({ host, image, record, signal }) => {
    const begin = performance.now();
    const template = await host.templates.create(image, {
      memoryMiB: MEMORY_MIB,
      warmUp: async (sandbox) => {
        await sandbox.ping();
        record("boot.fresh", (performance.now() - begin) * 1_000, sandbox.stages);
      },
      signal,
    });
    await template.release();
  },
};

function fanOut(count: number, every: number): Scenario {
  const name = `fork.n${count}`;
  let verified = false;
  return {
    names: [name],
    about: `${count} children in one call, all answering, per child; each gives 64 MiB of memory back byte for byte`,
    every,
    run: async (bench) => {
      const { id } = await patternTemplate(bench);
      // Without children that wait: each is made in the time that is measured.
      await using unpooled = await connectHost({ join: bench.host.address, pool: { maxReady: 0 } });
      const template = unpooled.checkpoints.get(id);
      const { result: children, microseconds } = await timed(async () => {
        const made = (await template.fork(count)).map((child) => {
          if (!child.ok) throw child.error;
          return child.sandbox;
        });
        await Promise.all(made.map((child) => child.ping()));
        return made;
      });
      bench.record(name, microseconds / count);
      // Outside of what is timed, and once a run: it reads every page of every child.
      if (!verified) for (const child of children) await verify(child);
      verified = true;
      await Promise.all(children.map((child) => child.close()));
    },
  };
}

const PAGE_KIB = 4;

const REWINDS = {
  "in-place": { suffix: ".inPlace", about: "what was written is put back" },
  "warm-fork": { suffix: "", about: "a child that waits takes the place" },
} as const;

/** One step of an episode that begins anew: so many pages are written, and given up. */
function rewound(pages: number, every: number, how: keyof typeof REWINDS): Scenario {
  const name = `rewind.d${pages}${REWINDS[how].suffix}`;
  return {
    names: [name],
    about: `back to the checkpoint after ${pages} pages of 4 KiB were written: ${REWINDS[how].about}`,
    every,
    run: async (bench) => {
      const template = await warmTemplate(bench);
      await using sandbox = await template.fork();
      // From the first rewind on children note what they write, and each of these is new.
      if (how === "in-place") await sandbox.rewind({ prefer: "fork" });
      if (how === "in-place" && (await sandbox.rewind({ prefer: how })).how !== how) {
        await sandbox.rewind({ prefer: "fork" });
      }
      const write = `count=${pages} of=/dev/shm/dirty`;
      // A guest may fill a quarter of its memory with such files unless it is told otherwise.
      const dd = await sandbox.exec(`mount -o remount,size=60% /dev/shm && dd if=/dev/zero bs=${PAGE_KIB}k ${write}`);
      if (dd.exitCode !== 0) throw new Error(`pages were not written: ${dd.stderr}`);
      await settle(bench, template);
      const { result, microseconds } = await timed(async () => {
        const rewound = await sandbox.rewind({ prefer: how === "in-place" ? how : "fork" });
        await sandbox.ping();
        return rewound;
      });
      if (result.how !== how) throw new Error(`it was a ${result.how}`);
      bench.record(name, microseconds, sandbox.stages);
    },
  };
}

export const SCENARIOS: readonly Scenario[] = [
  life,
  rewound(100, 1, "warm-fork"),
  rewound(1_000, 2, "warm-fork"),
  rewound(4_000, 2, "warm-fork"),
  rewound(17_640, 4, "warm-fork"),
  rewound(100, 2, "in-place"),
  rewound(1_000, 2, "in-place"),
  rewound(4_000, 4, "in-place"),
  rewound(17_640, 8, "in-place"),
  boot,
  fullMemory,
  fanOut(1, 1),
  fanOut(4, 1),
  fanOut(16, 4),
  fanOut(64, 20),
  sized(SMALL_MIB),
  sized(LARGE_MIB),
  alive,
  churn,
];

/** Of `a` to `b`. */
export const RATIOS: readonly { readonly name: string; readonly a: string; readonly b: string }[] = [
  { name: "boot.fresh / fork.pooled", a: "boot.fresh", b: "fork.pooled" },
  { name: "fork.cold / fork.pooled", a: "fork.cold", b: "fork.pooled" },
  ...FULL_MEMORY_RATIOS,
  ...SIZE_RATIOS,
  CHURN_RATIO,
];
