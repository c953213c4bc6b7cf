/** The contract between a search and whoever runs its trials. */

/**
 * A search as a set of functions over a state. Nothing here does I/O, reads a clock or draws from a generator.
 *
 * `ask` and `tell` change the state in place and return it: the state that was passed in is used up. `restore(serialise())`
 * makes an independent copy.
 */
export interface SearchAlgorithm<Config, State, Trial, Outcome> {
  /** Lower-case letters and dashes. */
  readonly name: string;
  /** @throws SearchError `INVALID_ARGUMENT` naming the field of the configuration. */
  init(config: Config, seed: number): State;
  /**
   * Up to `count` trials to run now. Fewer, also none, when the window is full, a cap is reached or nothing can be chosen:
   * `status` tells which.
   */
  ask(state: State, count: number): Asked<State, Trial>;
  /**
   * What came of a trial. Any order, repeats and stale attempts are allowed and lead to the same state.
   *
   * @throws SearchError `UNKNOWN_TRIAL` or `INVALID_OUTCOME`; the state is then unchanged.
   */
  tell(state: State, trial: number, attempt: number, outcome: Outcome): Told<State>;
  /** Ends asking; outcomes that were held back for their turn are merged now, those still to come as they are told. */
  finish(state: State): Changed<State>;
  /** Trials that were asked and whose outcome is not known, in order: after a restart, run these again. */
  outstanding(state: State): readonly Trial[];
  status(state: State): SearchStatus;
  /** The best node found. */
  best(state: State): NodeView;
  /** From the root's child to the node. A new array at each call. */
  path(state: State, node: number): readonly PathStep[];
  /** Where the next `count` trials will start if nothing more is told, soonest first. Never more than `count` nodes. */
  forecast(state: State, count: number): readonly Forecast[];
  /** A value that JSON and MessagePack carry exactly. */
  serialise(state: State): unknown;
  /** @throws SearchError `INCOMPATIBLE_STATE` */
  restore(serialised: unknown): State;
}

/** A state, and what the call that returned it did to the tree. */
export interface Changed<State> {
  readonly state: State;
  readonly changes: Changes;
}

/** What `ask` returns. */
export interface Asked<State, Trial> extends Changed<State> {
  readonly trials: readonly Trial[];
}

/** What `tell` returns. */
export interface Told<State> extends Changed<State> {
  /**
   * - `merged`: this outcome, perhaps with others that waited for it, is part of the tree now.
   * - `held`: kept until it is its turn.
   * - `retry`: an infrastructure failure; the next `ask` returns the trial again, with the next attempt.
   * - `ignored`: a repeat or a stale attempt; it had no effect.
   */
  readonly verdict: "merged" | "held" | "retry" | "ignored";
}

/** What a call did to the tree, for those who own the checkpoints. */
export interface Changes {
  /** Trials whose outcome became part of the tree, in order. */
  readonly merged: readonly number[];
  /** Nodes that were added, in order. */
  readonly accepted: readonly NodeView[];
  /**
   * Checkpoints that the search does not need any more: candidates that were refused, and nodes that were replaced and from
   * which no trial starts. Releasing one twice must do nothing. The root's checkpoint is never among them.
   */
  readonly released: readonly string[];
}

/** One node of the tree: a state of the environment that was reached and kept. */
export interface NodeView {
  /** Stable for the life of the search. The root is 0. */
  readonly node: number;
  /** null for the root. */
  readonly parent: number | null;
  /** null where the environment had ended, and where it represents no cell any more since the archive was divided anew. */
  readonly cell: string | null;
  readonly score: number;
  /** Sum of rewards from the root. */
  readonly reward: number;
  /** Steps from the root. */
  readonly length: number;
  /** The trial that found it; null for the root. */
  readonly trial: number | null;
  /** null once released, and for nodes that nothing can be started from. */
  readonly checkpoint: string | null;
}

/** One action on the way from the root to a node. */
export interface PathStep {
  readonly action: string;
  /** The node that this step arrived at, where it is one. */
  readonly node: number | null;
}

/** A node that trials will start from. */
export interface Forecast {
  readonly node: number;
  readonly checkpoint: string | null;
  /** Share of the trials that were looked ahead, above 0 and at most 1; the weights of a forecast add up to 1. */
  readonly weight: number;
}

/**
 * Why `ask` gives no new trial: `window` passes with the next tells, the others do not.
 *
 * `simulations` and `exhausted` are of searches over trees: as many simulations as were wanted are made or under way; all that
 * can be reached is known.
 */
export type SearchBlock =
  | "window"
  | "finished"
  | "steps"
  | "trials"
  | "nodes"
  | "simulations"
  | "exhausted"
  | "nothing-to-choose";

/** Where a search stands. All counts are of trials unless said otherwise. */
export interface SearchStatus {
  readonly asked: number;
  readonly merged: number;
  /** Running trials. */
  readonly inFlight: number;
  /** Trials that the next `ask` gives again. */
  readonly waiting: number;
  /** Told, and held back until it is their turn. */
  readonly held: number;
  /** Environment steps in merged outcomes. */
  readonly steps: number;
  readonly block: SearchBlock | null;
  /** No trial is open and none will be given. */
  readonly done: boolean;
}
