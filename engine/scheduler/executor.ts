/** Who runs trials: worker threads here, other machines later. */

import type { ArchiveDelta } from "../../search/index.js";
import type { RolloutOutcome, RolloutTask } from "../workers/protocol.js";

export interface ExecutorJob {
  readonly task: RolloutTask;
  /** Asked when the task is sent: what a worker that knows the archive as of version `since` lacks. */
  readonly knownSince: (since: number) => ArchiveDelta;
  /** Milliseconds after which the attempt is given up. */
  readonly deadlineMs: number;
}

export interface RolloutExecutor {
  /** Never rejects: what goes wrong on the way is an infrastructure failure. */
  run(job: ExecutorJob): Promise<RolloutOutcome>;
  /** Trials under way end after their step, and what they did counts. */
  stop(): void;
  /** Trials under way end at once. */
  abort(): void;
  /** Ends the workers. Trials under way are aborted. */
  close(): Promise<void>;
}
