import type { Changed, NodeView, SearchAlgorithm } from "../algorithm.js";
import type { TreeOptions } from "./config.js";
import type { TreeOutcome, TreeTrial } from "./outcome.js";
import type { SerialisedTree, TreeState } from "./state.js";
import type { ActionStatistics } from "./view.js";

/**
 * A search over a tree of decisions. Each trial takes one action from one node and reports the state that it leads to, with what
 * that is worth; values, rewards and returns are player 0's everywhere.
 *
 * `best` is the child of the root that the search recommends, the root itself while it has none; searches for a way to a goal give the
 * node at the end of the best way. In node views, `score` is the value
 * of the node, `reward` the sum of rewards from the first root, `length` the decisions from there, `cell` the key of the state.
 */
export interface TreeSearch<Options extends TreeOptions, Params>
  extends SearchAlgorithm<Options, TreeState<Params>, TreeTrial, TreeOutcome> {
  /** What was found out about the root's actions, in the order of the list, proposals behind it; rejected ones are left out. */
  actions(state: TreeState<Params>): readonly ActionStatistics[];
  /** @throws SearchError `INVALID_ARGUMENT` for a node that is not in the tree. */
  node(state: TreeState<Params>, node: number): NodeView;
  /**
   * The action has been taken in earnest: goes on from the state that it led to, with all that is known below it. Everything else is
   * dropped, and trials that are under way there are over. Do it at rest where equal runs matter.
   *
   * @throws SearchError `INVALID_ARGUMENT` for a state that has ended or is not evaluated.
   */
  advanceRoot(state: TreeState<Params>, node: number): Changed<TreeState<Params>>;
  /**
   * Takes a subtree out, and makes room for others. Statistics of what is above it stay; its action counts as not tried. Refused
   * with transpositions, where other nodes may lead into it.
   */
  drop(state: TreeState<Params>, node: number): Changed<TreeState<Params>>;
  serialise(state: TreeState<Params>): SerialisedTree;
}
