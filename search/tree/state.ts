import type { BookRecord, TrialBook, TrialBookData } from "../trial-book.js";
import type { TreeConfig } from "./config.js";
import type { RecordedStep } from "./outcome.js";
import type { Tree, TreeData } from "./tree.js";

/** A way down from the root, and the reward of each of its steps as this simulation met it. */
export interface Line {
  readonly path: readonly number[];
  /** `rewards[i]` is that of the step to `path[i]`; 0 for the root. */
  readonly rewards: readonly number[];
}

/** What is decided when a trial is asked: its line ends in the row of the action. */
export interface TreeStart extends Line {
  /** The node that the action is taken from. */
  readonly from: number;
  readonly action: string | null;
  readonly notes: readonly string[];
}

export type TreeRecord = BookRecord<TreeStart, RecordedStep>;
export type TreeBook = TrialBook<TreeStart, RecordedStep>;

/** Opaque: use the functions of the search that made it, and those of this folder that take it. */
export interface TreeState<Params = unknown> {
  readonly algorithm: string;
  readonly config: TreeConfig;
  /** What the algorithm's own options were resolved to. */
  readonly params: Params;
  readonly seed: number;
  readonly tree: Tree;
  readonly book: TreeBook;
  /** Checkpoints that the search needs, the root's apart. */
  readonly held: Set<string>;
  /** Simulations that reached a known outcome of a chance node and go on from there. */
  readonly continuing: Line[];
  /** Node of each key, where the search has transpositions. */
  readonly nodeOfKey: Map<string, number>;
  /** Lowest and highest return of a step so far; null before the first. */
  range: { readonly lowest: number; readonly highest: number } | null;
  /** Merged simulations. */
  simulations: number;
  /** Merged results, each one step of the environment. */
  steps: number;
  /** Sum of rewards from the first root to the present one. */
  rootReward: number;
  /** Simulations that needed no environment since a trial was last asked or merged. */
  knownInARow: number;
  /** Nothing could be chosen when last tried: the next outcome is merged although it is not due. Not serialised. */
  isStuck: boolean;
}

/** What `serialise` returns: plain data that JSON and MessagePack carry exactly. */
export interface SerialisedTree {
  readonly format: number;
  readonly algorithm: string;
  readonly config: TreeConfig;
  readonly params: unknown;
  readonly seed: number;
  readonly tree: TreeData;
  readonly book: TrialBookData<TreeStart, RecordedStep>;
  readonly continuing: readonly Line[];
  readonly range: { readonly lowest: number; readonly highest: number } | null;
  readonly simulations: number;
  readonly steps: number;
  readonly rootReward: number;
  readonly knownInARow: number;
}
