/** The same operations for a small and a large guest that have written the same: cost is to follow the delta. */

import { firstReply, settle, timed, warmTemplate } from "./measure.js";
import type { Scenario } from "./scenario.js";

export const SMALL_MIB = 128;
export const LARGE_MIB = 2_048;

const OPERATIONS = ["fork.pooled", "checkpoint.live.total", "checkpoint.park", "fork.cold"] as const;

const BYTES_PER_MIB = 1024 * 1024;

/** Pages that each guest writes before it is copied. */
const PAGES = 1_000;

export function sized(memoryMiB: number): Scenario {
  const name = (operation: (typeof OPERATIONS)[number]): string => `guest${memoryMiB}.${operation}`;
  return {
    names: OPERATIONS.map(name),
    about: `a guest of ${memoryMiB} MiB that has written ${PAGES} pages: handed out, checkpointed, parked, forked on demand`,
    every: 2,
    run: async (bench) => {
      const { host, record } = bench;
      // On a host that the guest would fill there is nothing to compare.
      if (host.info.memoryBytes < 2 * memoryMiB * BYTES_PER_MIB) return;
      const template = await warmTemplate(bench, { memoryMiB });
      await settle(bench, template);
      const { sandbox, microseconds } = await firstReply(() => template.fork());
      record(name("fork.pooled"), microseconds, sandbox.stages);
      await sandbox.exec(["/bin/sh", "-c", `dd if=/dev/zero bs=4k count=${PAGES} of=/dev/shm/written 2>/dev/null`]);
      const live = await timed(() => sandbox.checkpoint());
      record(name("checkpoint.live.total"), live.microseconds, live.result.stages);
      await live.result.release();
      const park = await timed(() => sandbox.park());
      record(name("checkpoint.park"), park.microseconds, park.result.stages);
      const cold = await firstReply(() => park.result.fork());
      record(name("fork.cold"), cold.microseconds, cold.sandbox.stages);
      await cold.sandbox.close();
      await park.result.release();
      host.pool.forecast(template.id, 0);
    },
  };
}

/** Each operation's ratio of the small guest to the large one. */
export const SIZE_RATIOS = OPERATIONS.map((operation) => ({
  name: `memory.128vs2048 ${operation}`,
  a: `guest${SMALL_MIB}.${operation}`,
  b: `guest${LARGE_MIB}.${operation}`,
}));
