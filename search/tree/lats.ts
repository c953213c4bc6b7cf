import { integer, real } from "../check-options.js";
import { invalidArgument } from "../errors.js";
import { allVisits, type Choices, normalisedReturn, returnBounds, totalVisits } from "./choices.js";
import type { TreeConfig, TreeOptions } from "./config.js";
import { TREE_DEFAULTS } from "./defaults.js";
import { averageBackup } from "./rules.js";
import type { TreeState } from "./state.js";
import { Kind, NONE } from "./tree.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { createTreeSearch } from "./tree-search.js";

/** Options of `lats`. */
export interface LatsOptions extends Omit<TreeOptions, "widening"> {
  /** Proposals at each state. Default 5. */
  readonly children?: number;
  /** As for UCT. Default 1. */
  readonly exploration?: number;
  /** The latest so many notes of states that have ended are handed to every trial; 0: none. Default 3. */
  readonly maxNotes?: number;
}

interface LatsParams {
  readonly children: number;
  readonly exploration: number;
  readonly maxNotes: number;
}

/**
 * Tree search in the style of LATS: a language model proposes, judges and reflects. States get their proposals before any of these is
 * gone on with, then upper confidence bounds decide; what was noted where an attempt ended is handed to all later trials.
 *
 * Source: Zhou and others, "Language agent tree search unifies reasoning, acting and planning in language models", arXiv 2310.04406.
 */
export const lats: TreeSearch<LatsOptions, LatsParams> = createTreeSearch<LatsOptions, LatsParams>({
  name: "lats",
  optionNames: ["children", "exploration", "maxNotes"],
  defaults: { proposals: true },
  resolve,
  select,
  expand: ({ tree, config, params }, node) =>
    tree.columns.childCount.get(node) < Math.min(params.children, config.maxWidth),
  notes,
  backup: averageBackup,
  recommend: (_state, choices) => {
    // The paper answers with the greatest value: a path is wanted, and not a policy.
    const best = bestReturn(choices);
    const probabilities = Array.from({ length: choices.count }, (_, index) => Number(index === best));
    return { score: (index) => choices.q[index] as number, probabilities };
  },
});

function resolve(options: LatsOptions, config: TreeConfig): LatsParams {
  if (config.players === 2) throw invalidArgument("players", 2, "1: attempts are one player's");
  if (config.stochastic) throw invalidArgument("stochastic", true, "false: children are proposals");
  if ((options as TreeOptions).widening !== undefined)
    throw invalidArgument("widening", "present", "left out: children says how many proposals a state has");
  const { maxNotes = TREE_DEFAULTS.lats.maxNotes } = options;
  if (!Number.isInteger(maxNotes) || maxNotes < 0 || maxNotes > 1_000)
    throw invalidArgument("maxNotes", maxNotes, "an integer from 0 to 1000");
  return {
    children: integer("children", options.children, TREE_DEFAULTS.lats.children, 100_000),
    exploration: real("exploration", options.exploration, TREE_DEFAULTS.lats.exploration, { from: 0, to: 1e6 }),
    maxNotes,
  };
}

/** A proposal while one is missing; then the greatest Q + exploration · sqrt(ln N / n). Every child has been judged: none is without visits. */
function select(state: TreeState<LatsParams>, choices: Choices): number {
  const missing = choices.best((index) => (choices.child[index] === NONE ? 1 : 0));
  if (missing >= 0 && choices.child[missing] === NONE) return missing;
  const bounds = returnBounds(state, choices.node);
  const logarithm = Math.log(totalVisits(state, choices));
  return choices.best((index) => {
    const ratio = logarithm / allVisits(state, choices, index);
    return normalisedReturn(state, choices, index, bounds) + state.params.exploration * Math.sqrt(ratio);
  });
}

/** Of states that have ended, in the order of the trials that found them. */
function notes({ tree, params }: TreeState<LatsParams>): string[] {
  if (params.maxNotes === 0) return [];
  const ended = tree.noted().filter((node) => tree.kind(node) === Kind.terminal);
  ended.sort((one, two) => tree.columns.trial.get(one) - tree.columns.trial.get(two));
  return ended.slice(-params.maxNotes).map((node) => tree.note(node) ?? "");
}

function bestReturn(choices: Choices): number {
  let best = -1;
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.visits[index] === 0) continue;
    if (best < 0 || (choices.q[index] as number) > (choices.q[best] as number)) best = index;
  }
  return best;
}
