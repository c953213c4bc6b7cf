/** What a run tells while it goes on. */

import type { Json } from "../json.js";

export interface Progress {
  /** Cells in the archive. */
  readonly cells: number;
  readonly bestScore: number;
  /** Steps from the root to the deepest node. */
  readonly depth: number;
  /** Different keys seen of each kind of landmark. */
  readonly landmarks: Readonly<Record<string, number>>;
  readonly trials: number;
  /** Environment steps taken, those of trials under way included. */
  readonly steps: number;
  readonly stepsPerSecond: number;
  readonly forks: number;
  readonly forksPerSecond: number;
  /** Sandboxes that trials hold now. */
  readonly sandboxes: number;
  readonly checkpoints: CheckpointCounts;
  readonly elapsedMs: number;
  /** Until the budget ends, as far as it can be foreseen. */
  readonly remainingMs: number | null;
  /** What was seen at the best state. */
  readonly bestObservation: Json;
}

export interface CheckpointCounts {
  /** Parked by trials. */
  readonly taken: number;
  /** Dropped because nothing can reach them. */
  readonly pruned: number;
  /** Dropped to save memory; they are derived again when they are needed. */
  readonly evicted: number;
  /** Held now. */
  readonly hot: number;
}

/** One environment step, told in the order in which the search learns of it. */
export interface VisitReport {
  readonly trial: number;
  /** 0 for the first step of the trial. */
  readonly step: number;
  /** Environment steps of the run that were told before this one. */
  readonly order: number;
  readonly action: string;
  readonly observation: Json;
  readonly cell: string;
  /** Before and after the step. */
  readonly from: Readonly<Record<string, string>>;
  readonly landmarks: Readonly<Record<string, string>>;
  readonly reward: number;
  readonly terminated: boolean;
}
