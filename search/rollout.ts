import type { CellKnowledge } from "./cell-knowledge.js";

/** Trials that walk on from a node, and what they report: shared by all searches over an archive of cells. */

/** Where a trial starts. */
export interface StartPoint {
  readonly node: number;
  readonly cell: string;
  /** null: start from the root's own state. */
  readonly checkpoint: string | null;
  /** Steps from the root. */
  readonly length: number;
  readonly score: number;
  /** Sum of rewards from the root. */
  readonly reward: number;
}

/** How to come from the root to the cell that a trial is to explore from. */
export interface ReturnWay {
  /** Cells on the way, the goal last; empty if the trial explores from the root. */
  readonly cells: readonly string[];
  /** Whoever has not arrived after so many steps explores from where he is. */
  readonly maxSteps: number;
}

/** Start somewhere and walk on. */
export interface RolloutTrial {
  /** 0, 1, 2, … in the order of asking. */
  readonly id: number;
  /** 0, then one more each time the trial is given again after an infrastructure failure. */
  readonly attempt: number;
  readonly from: StartPoint;
  /** Take at most this many steps, those of the way included. */
  readonly steps: number;
  /** Only where returns are by a policy (`policyReturn`). */
  readonly returning?: ReturnWay;
  /** Seed for everything that is drawn in this trial, see `chooseAction`; the same for every attempt. */
  readonly seed: number;
  /** Judge candidates by the archive as it was then: `ArchiveReplica.at(trial)`. */
  readonly version: number;
}

/** A state that may enter the archive, and where it was kept. */
export interface Candidate {
  /** Opaque to the search. Every checkpoint has a name of its own. */
  readonly checkpoint: string;
}

/** One step of a trial. */
export interface Visit {
  readonly action: string;
  readonly reward: number;
  /** The cell after the step. */
  readonly cell: string;
  /** The environment has ended: nothing can follow. */
  readonly terminated: boolean;
  /** How good the state after the step is. Default: sum of rewards from the root. */
  readonly score?: number;
  /** Where the state after the step was kept. */
  readonly candidate?: Candidate;
  /** What is known of the cell besides its name; the same for every visit of it. Read where `weights.knowledge` is given. */
  readonly knowledge?: CellKnowledge;
  /** What the cell was computed from, where the archive may be divided anew (`redivide`). Default: the cell. */
  readonly sample?: string;
  /** The command that showed the score to be true, `npm test` for instance. Kept with the node: `verifiedBy`. */
  readonly verified?: string;
  /** Things seen that are counted apart from cells: kind to key. */
  readonly landmarks?: Readonly<Record<string, string>>;
}

export type RolloutOutcome =
  | { readonly kind: "value"; readonly visits: readonly Visit[] }
  /** Nothing was learned: the trial is given again, or forgotten after `maxAttempts`. */
  | { readonly kind: "infrastructure-failure"; readonly reason: string }
  /** The start was tried and led to nothing usable: it counts as chosen, and no step was taken. */
  | { readonly kind: "rejected"; readonly reason: string };
