import type { SearchStatus } from "../algorithm.js";
import type { BookRecord, TrialBook, TrialBookData } from "../trial-book.js";
import type { HalvingConfig, HalvingOptions } from "./config.js";
import type { Candidate, Step } from "./ladder.js";

/** Carry a rollout on to its next rung. */
export interface HalvingTrial {
  readonly id: number;
  /** 0, then one more each time the trial is given again after an infrastructure failure. */
  readonly attempt: number;
  /** Which rollout. */
  readonly candidate: number;
  readonly rung: number;
  /** Where it stands; null: at the root. */
  readonly checkpoint: string | null;
  /** Steps from the root where it stands, and where it is to be judged. */
  readonly fromSteps: number;
  readonly toSteps: number;
  /** Seed of the rollout, the same on all rungs, and of this part of it. */
  readonly candidateSeed: number;
  readonly seed: number;
}

export type HalvingOutcome =
  /** How good the rollout is by now, greater is better; where its state is kept, unless nothing can follow. */
  | { readonly kind: "value"; readonly score: number; readonly checkpoint?: string }
  | { readonly kind: "infrastructure-failure"; readonly reason: string }
  /** The rollout can not go on: it is out. */
  | { readonly kind: "rejected"; readonly reason: string };

export interface Judgement {
  readonly kind: "value";
  readonly score: number;
  readonly checkpoint: string | null;
}

export type HalvingRecord = BookRecord<Step, Judgement>;

/** Opaque: use the functions of the search that made it. */
export interface HalvingState {
  readonly config: HalvingConfig;
  readonly seed: number;
  readonly book: TrialBook<Step, Judgement>;
  readonly candidates: Candidate[];
  /** Steps of merged results. */
  steps: number;
  /** Nothing could be chosen when last tried. Not serialised. */
  isStuck: boolean;
}

export interface SerialisedHalving {
  readonly format: number;
  readonly algorithm: string;
  readonly config: HalvingConfig;
  readonly seed: number;
  readonly book: TrialBookData<Step, Judgement>;
  readonly candidates: readonly Candidate[];
  readonly steps: number;
}

export interface HalvingChanges {
  readonly merged: readonly number[];
  /** Checkpoints that the search does not need any more. */
  readonly released: readonly string[];
}

export interface RankedRollout extends Candidate {
  readonly candidate: number;
  /** Steps from the root where it was judged last. */
  readonly steps: number;
}

export interface HalvingSearch {
  readonly name: string;
  /** @throws SearchError `INVALID_ARGUMENT` naming the field. */
  init(options: HalvingOptions, seed: number): HalvingState;
  ask(
    state: HalvingState,
    count: number,
  ): { readonly state: HalvingState; readonly trials: readonly HalvingTrial[]; readonly changes: HalvingChanges };
  /** @throws SearchError `UNKNOWN_TRIAL` or `INVALID_OUTCOME`; the state is then unchanged. */
  tell(
    state: HalvingState,
    trial: number,
    attempt: number,
    outcome: HalvingOutcome,
  ): {
    readonly state: HalvingState;
    readonly changes: HalvingChanges;
    readonly verdict: "merged" | "held" | "retry" | "ignored";
  };
  finish(state: HalvingState): { readonly state: HalvingState; readonly changes: HalvingChanges };
  outstanding(state: HalvingState): readonly HalvingTrial[];
  status(state: HalvingState): SearchStatus;
  /** The best of those that came furthest; null before the first was judged. */
  best(state: HalvingState): RankedRollout | null;
  /** All that were judged: furthest first, then greatest score, then the one that began first. */
  ranking(state: HalvingState): readonly RankedRollout[];
  serialise(state: HalvingState): SerialisedHalving;
  /** @throws SearchError `INCOMPATIBLE_STATE` */
  restore(serialised: unknown): HalvingState;
}
