import type { Choices, ExpandRule } from "./choices.js";
import type { TreeConfig, TreeOptions } from "./config.js";
import type { Descent } from "./descend.js";
import type { RecordedStep } from "./outcome.js";
import type { TreeState } from "./state.js";

/**
 * What tells one tree search from another. The loop does all the rest: it descends by `select` until an action is untried, asks for
 * it, merges results in the order of asking, and backs them up.
 *
 * All functions must depend on their arguments only. Randomness is drawn by name from `state.seed`, see `drawUniform`.
 */
export interface TreePolicy<Options extends TreeOptions, Params> {
  /** Lower-case letters and dashes. */
  readonly name: string;
  /** Names of the options that are not in `TreeOptions`. */
  readonly optionNames: readonly string[];
  /** For options that were left out. */
  readonly defaults?: Partial<TreeOptions>;
  /**
   * The algorithm's own options, checked and complete, as a value that JSON carries. What the algorithm can not handle is refused
   * here.
   *
   * @throws SearchError `INVALID_ARGUMENT`
   */
  resolve(options: Options, config: TreeConfig): Params;
  /** The choice to follow, or -1 to follow none now. Never one that is blocked. */
  select(state: TreeState<Params>, choices: Choices): number;
  /** Default: `widen`. */
  readonly expand?: ExpandRule<Params>;
  /**
   * Where the next trial goes, in place of a descent by `select`; null if nowhere now. Changes nothing that is part of the state. Here
   * begin searches that keep a frontier instead of descending.
   */
  choose?(state: TreeState<Params>): Descent | null;
  /** Called when the children of a node, or what leads to it, may have changed; without a node, when anything may have. */
  changed?(state: TreeState<Params>, node: number | null): void;
  /** The node to answer with, in place of the child of the root that scores highest. */
  best?(state: TreeState<Params>): number;
  /** What a new state is worth for player 0. Default: the value that was told. */
  evaluate?(state: TreeState<Params>, step: RecordedStep): number;
  /** What a trial that starts at the node is told, see `TreeTrial.notes`. Default: nothing. */
  notes?(state: TreeState<Params>, node: number): readonly string[];
  /**
   * Whether mean squares of returns are kept for each step (`tree.columns.squares`, as shares of the range), where the range is given.
   * Default: no.
   */
  keepsSquares?(params: Params): boolean;
  /** Sets the value of a node through which a return came; its visits are already counted. */
  readonly backup: BackupRule<Params>;
  /**
   * How good each choice is as the final answer at a decision that was searched: `score` decides, `probabilities` (one a choice,
   * adding up to 1) are for who wants to draw or to train.
   */
  recommend(state: TreeState<Params>, choices: Choices): Recommendation;
}

/** What an algorithm makes of the choices at the root when it is asked for an answer. */
export interface Recommendation {
  readonly score: (index: number) => number;
  readonly probabilities: readonly number[];
}

export type BackupRule<Params> = (state: TreeState<Params>, node: number, arrived: number) => void;
