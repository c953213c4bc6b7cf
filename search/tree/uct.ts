import { oneOf, real } from "../check-options.js";
import { invalidArgument } from "../errors.js";
import { allVisits, type Choices, normalisedReturn, returnBounds, totalVisits } from "./choices.js";
import type { TreeOptions } from "./config.js";
import { TREE_DEFAULTS } from "./defaults.js";
import { averageBackup, maxBackup, mostVisits } from "./rules.js";
import type { TreeState } from "./state.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { createTreeSearch } from "./tree-search.js";
import { normalise } from "./value.js";

/** Options of `uct`. */
export interface UctOptions extends TreeOptions {
  /** Weight of exploration, for returns in [0, 1]: 0 or more. Default √2. */
  readonly exploration?: number;
  /**
   * `ucb1`: exploration · sqrt(ln N / n). `tuned`: sqrt(ln N / n · min(1/4, V)), V being an upper bound of the variance; it needs a
   * `range` in numbers, and has no `exploration`. Default `ucb1`.
   */
  readonly formula?: "ucb1" | "tuned";
  /** What a node is worth: the mean of the returns below it, or the best of them. Default `average`. */
  readonly backup?: "average" | "max";
}

interface UctParams {
  readonly exploration: number;
  readonly formula: "ucb1" | "tuned";
  readonly backup: "average" | "max";
}

const LARGEST_EXPLORATION = 1e6;

/**
 * Monte-Carlo tree search with upper confidence bounds. Actions that were not tried come first, in the order of their priors and then
 * of the list; so do ties.
 *
 * Sources: Kocsis and Szepesvári, "Bandit based Monte-Carlo planning" (2006); UCB1 and UCB1-tuned: Auer, Cesa-Bianchi and Fischer
 * (2002); max backup: Coulom (2006), Keller and Helmert (2013); counts of what is under way: Liu and others, arXiv 1810.11755.
 */
export const uct: TreeSearch<UctOptions, UctParams> = createTreeSearch<UctOptions, UctParams>({
  name: "uct",
  optionNames: ["exploration", "formula", "backup"],
  resolve: ({ exploration, formula, backup, range }) => {
    const words = { formula: oneOf("formula", formula, "ucb1", ["ucb1", "tuned"]) };
    if (words.formula === "tuned" && !Array.isArray(range))
      throw invalidArgument("range", range, "two numbers with formula tuned, whose variance has no meaning otherwise");
    if (words.formula === "tuned" && exploration !== undefined)
      throw invalidArgument("exploration", exploration, "left out with formula tuned");
    return {
      exploration: real("exploration", exploration, TREE_DEFAULTS.exploration, { from: 0, to: LARGEST_EXPLORATION }),
      ...words,
      backup: oneOf("backup", backup, "average", ["average", "max"]),
    };
  },
  select,
  keepsSquares: ({ formula }) => formula === "tuned",
  backup: (state, node, arrived) => {
    if (state.params.backup === "max") maxBackup(state, node, arrived);
    else averageBackup(state, node, arrived);
  },
  recommend: mostVisits,
});

function select(state: TreeState<UctParams>, choices: Choices): number {
  if (choices.untried > 0) {
    const isTried = (index: number): boolean => allVisits(state, choices, index) > 0;
    return choices.best((index) => (isTried(index) ? -1 : (choices.prior[index] as number)));
  }
  const bounds = returnBounds(state, choices.node);
  const logarithm = Math.log(totalVisits(state, choices));
  const { exploration, formula } = state.params;
  let best = -1;
  let highest = 0;
  // Written out, as `choices.best` has it: in a large tree this is where time goes.
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.blocked[index] === 1) continue;
    const ratio = logarithm / allVisits(state, choices, index);
    const q = normalisedReturn(state, choices, index, bounds);
    const score =
      formula === "ucb1" ? q + exploration * Math.sqrt(ratio) : q + tunedBonus(state, choices, index, ratio);
    if (best >= 0 && !(score > highest)) continue;
    best = index;
    highest = score;
  }
  return best;
}

function tunedBonus(state: TreeState<UctParams>, choices: Choices, index: number, ratio: number): number {
  return Math.sqrt(ratio * Math.min(0.25, variance(state, choices, index) + Math.sqrt(2 * ratio)));
}

/** Of the normalised returns of a choice, as they arrived; the same for both players. */
function variance({ tree, config }: TreeState<UctParams>, choices: Choices, index: number): number {
  if (choices.visits[index] === 0 || config.range === "observed") return 0.25;
  const [lowest, highest] = config.range;
  const mean = normalise(tree.sign(choices.node) * (choices.q[index] as number), lowest, highest);
  return Math.max(0, tree.columns.squares.get(choices.child[index] as number) - mean * mean);
}
