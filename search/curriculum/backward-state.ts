import type { SearchStatus } from "../algorithm.js";
import type { TrialBook, TrialBookData } from "../trial-book.js";
import type { BackwardConfig, BackwardOptions } from "./config.js";

/** Let the policy play on from a state of the demonstration. */
export interface BackwardTrial {
  readonly id: number;
  readonly attempt: number;
  /** Index in the demonstration. */
  readonly start: number;
  readonly checkpoint: string | null;
  readonly step: number;
  /** Gain that counts as success, and steps after which the rollout is to be cut. */
  readonly target: number;
  readonly maxSteps: number;
  readonly seed: number;
}

export type BackwardOutcome =
  /** Gained from the start of the trial; steps taken. */
  | { readonly kind: "value"; readonly gain: number; readonly steps: number }
  | { readonly kind: "infrastructure-failure"; readonly reason: string }
  /** The policy gave up: no success. */
  | { readonly kind: "rejected"; readonly reason: string };

export interface Played {
  readonly kind: "value";
  readonly isSuccess: boolean;
}

export interface Start {
  readonly start: number;
}

/** Opaque: use the functions of the curriculum. */
export interface BackwardState {
  readonly config: BackwardConfig;
  readonly seed: number;
  readonly book: TrialBook<Start, Played>;
  /** The state that is being learned: its index; -1 when the first has been learned. */
  at: number;
  /** Rollouts from it that are merged, and how many of them did as well as the demonstration. */
  played: number;
  succeeded: number;
}

export interface SerialisedBackward {
  readonly format: number;
  readonly algorithm: string;
  readonly config: BackwardConfig;
  readonly seed: number;
  readonly book: TrialBookData<Start, Played>;
  readonly at: number;
  readonly played: number;
  readonly succeeded: number;
}

export interface BackwardChanges {
  readonly merged: readonly number[];
  /** Indexes that the start moved to, in order; -1: all is learned. */
  readonly moved: readonly number[];
  /** This is no owner of checkpoints: always empty. */
  readonly released: readonly string[];
}

/** As for all searches; `exhausted`: all is learned. There are no steps. */
export interface BackwardStatus extends Omit<SearchStatus, "steps"> {
  /** Index of the state that is being learned; -1 when none is left. */
  readonly at: number;
  /** Share of successes among the rollouts from there; null before the first. */
  readonly successRate: number | null;
}

export interface BackwardCurriculum {
  readonly name: string;
  /** @throws SearchError `INVALID_ARGUMENT` naming the field. */
  init(options: BackwardOptions, seed: number): BackwardState;
  ask(
    state: BackwardState,
    count: number,
  ): { readonly state: BackwardState; readonly trials: readonly BackwardTrial[]; readonly changes: BackwardChanges };
  /** @throws SearchError `UNKNOWN_TRIAL` or `INVALID_OUTCOME`; the state is then unchanged. */
  tell(
    state: BackwardState,
    trial: number,
    attempt: number,
    outcome: BackwardOutcome,
  ): {
    readonly state: BackwardState;
    readonly changes: BackwardChanges;
    readonly verdict: "merged" | "held" | "retry" | "ignored";
  };
  /** Ends asking; outcomes that were held back for their turn are merged now. */
  finish(state: BackwardState): { readonly state: BackwardState; readonly changes: BackwardChanges };
  outstanding(state: BackwardState): readonly BackwardTrial[];
  status(state: BackwardState): BackwardStatus;
  serialise(state: BackwardState): SerialisedBackward;
  /** @throws SearchError `INCOMPATIBLE_STATE` */
  restore(serialised: unknown): BackwardState;
}
