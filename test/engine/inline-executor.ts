/** Trials in this thread, in a shuffled order of completion: for tests of what must not depend on threads and timing. */

import { loadEnvironment } from "../../engine/run/environment-module.js";
import type { RunEnvironment } from "../../engine/run/run.js";
import type { RolloutExecutor } from "../../engine/scheduler/executor.js";
import { Counters } from "../../engine/workers/counters.js";
import { rollOut } from "../../engine/workers/rollout.js";
import type { Host } from "../../sandbox-pool/index.js";
import { ArchiveReplica } from "../../search/index.js";

export interface InlineOptions {
  readonly host: Host;
  /** Milliseconds to wait after trial `trial`. */
  readonly delay?: (trial: number) => number;
}

export function inlineEnvironment({ host, delay = () => 0 }: InlineOptions): RunEnvironment {
  return {
    connectHost: () => Promise.reject(new Error("give the host as an option")),
    now: () => 0,
    createExecutor: ({ context }): RolloutExecutor => {
      const stop = new AbortController();
      const abort = new AbortController();
      const replica = new ArchiveReplica();
      const loaded = loadEnvironment(new URL(context.environment));
      const counters = new Counters(context.counters);
      const running = new Set<Promise<unknown>>();
      const { policy, keepCheckpoints, optimiseScore } = context;
      return {
        run: async ({ task, knownSince }) => {
          replica.apply(knownSince(Math.max(0, replica.version)));
          const environment = await loaded;
          const signals = { stop: stop.signal, abort: abort.signal };
          const tools = { host, environment, policy, replica, keepCheckpoints, optimiseScore, counters, ...signals };
          const work = rollOut(task, tools);
          running.add(work);
          const outcome = await work;
          running.delete(work);
          await new Promise((resolve) => setTimeout(resolve, delay(task.trial)));
          return outcome;
        },
        stop: () => stop.abort(),
        abort: () => abort.abort(),
        close: async () => {
          abort.abort();
          await Promise.allSettled(running);
        },
      };
    },
  };
}
