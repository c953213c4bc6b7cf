/** The whole guest memory to a file and into a new VMM process, as systems do that restore snapshots; beside it a fork. */

import { connectBaseline } from "../../sandbox-pool/index.js";
import { firstReply, settle, timed, warmTemplate } from "./measure.js";
import type { Scenario } from "./scenario.js";

const SAVE = "baseline.fullMemory.save";
const RESTORE = "baseline.fullMemory.restore";
const MAPPED = "baseline.fullMemory.restoreMapped";
const POOLED = "baseline.fullMemory.fork.pooled";
const COLD = "baseline.fullMemory.fork.cold";

/**
 * The template has no disk, which the file could not hold: its forks are measured too, so that like is compared with like.
 * The host keeps the file in memory or in its page cache: no restore waits for a drive.
 */
export const fullMemory: Scenario = {
  names: [SAVE, RESTORE, MAPPED, POOLED, COLD],
  about:
    "a parked guest without a disk: all memory to a file; into a new VMM, all of it read before it runs, or mapped; forks of the same",
  every: 4,
  run: async (bench) => {
    const { host, image, record, signal } = bench;
    const template = await warmTemplate(bench, { diskMiB: 0 });
    await using parked = await (await template.fork()).park();
    await using baseline = await connectBaseline(host.address, { signal });
    const saved = await timed(() => baseline.save(parked.id));
    record(SAVE, saved.microseconds, saved.result.stages);
    for (const [name, mapped] of [
      [RESTORE, false],
      [MAPPED, true],
    ] as const) {
      const { result, microseconds } = await timed(async () => {
        const restored = await baseline.restore({ checkpoint: parked.id, image: image.id, mapped });
        const sandbox = host.sandboxes.get(restored.sandbox);
        await sandbox.ping();
        return { sandbox, stages: restored.stages };
      });
      record(name, microseconds, result.stages);
      const { exitCode } = await result.sandbox.exec(["/bin/true"]);
      if (exitCode !== 0) throw new Error("the restored guest runs no program");
      await result.sandbox.close();
    }
    await settle(bench, template);
    const pooled = await firstReply(() => template.fork());
    record(POOLED, pooled.microseconds, pooled.sandbox.stages);
    await pooled.sandbox.close();
    const cold = await firstReply(() => parked.fork());
    record(COLD, cold.microseconds, cold.sandbox.stages);
    await cold.sandbox.close();
    host.pool.forecast(template.id, 0);
  },
};

export const FULL_MEMORY_RATIOS = [
  { name: "fullMemory.restore / fork.pooled", a: RESTORE, b: "fork.pooled" },
  { name: "fullMemory.restore / fork.pooled of the same guest", a: RESTORE, b: POOLED },
  { name: "fullMemory.restoreMapped / fork.pooled of the same guest", a: MAPPED, b: POOLED },
  { name: "fullMemory.restore / fork.cold of the same guest", a: RESTORE, b: COLD },
];
