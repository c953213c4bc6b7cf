import { real } from "../check-options.js";
import { invalidArgument } from "../errors.js";
import { allVisits, type Choices, totalVisits } from "./choices.js";
import type { TreeConfig, TreeOptions } from "./config.js";
import { TREE_DEFAULTS } from "./defaults.js";
import { gumbels } from "./noise.js";
import type { Recommendation } from "./policy.js";
import { averageBackup } from "./rules.js";
import { consideredVisits } from "./sequential-halving.js";
import type { TreeState } from "./state.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { createTreeSearch } from "./tree-search.js";
import { normalise } from "./value.js";

/** Options of `gumbelMuZero`. */
export interface GumbelOptions extends TreeOptions {
  /** The budget that sequential halving divides. Needed. */
  readonly maxSimulations: number;
  /** Actions of the root that are looked at. Default 16. */
  readonly considered?: number;
  /** Added to the visits of the most visited action before returns are scaled by it. Default 50. */
  readonly visitInit?: number;
  /** Default .1. */
  readonly valueScale?: number;
  /** Factor of the noise; 0 for play without exploration. Default 1. */
  readonly scale?: number;
  /** The root's noise, one number an action, instead of a draw. */
  readonly gumbel?: readonly number[];
}

interface GumbelParams {
  readonly considered: number;
  readonly visitInit: number;
  readonly valueScale: number;
  readonly scale: number;
  readonly gumbel: readonly number[] | null;
}

const LARGEST = 1e6;
/** Stands for the logarithm of 0: an action with such a prior is the last to be chosen. */
const LEAST_LOGIT = -1e9;

/**
 * Gumbel MuZero: the root's actions are drawn without replacement, sequential halving finds the best of them, and the answer improves
 * on the priors for any number of simulations.
 *
 * Source: Danihelka, Guez, Schrittwieser, Silver, "Policy improvement by planning with Gumbel", ICLR 2022.
 */
export const gumbelMuZero: TreeSearch<GumbelOptions, GumbelParams> = createTreeSearch<GumbelOptions, GumbelParams>({
  name: "gumbel-muzero",
  optionNames: ["considered", "visitInit", "valueScale", "scale", "gumbel"],
  resolve,
  select: (state, choices) =>
    choices.node === state.tree.root ? selectAtRoot(state, choices) : selectBelow(state, choices),
  backup: averageBackup,
  recommend,
});

function resolve(options: GumbelOptions, config: TreeConfig): GumbelParams {
  const { gumbel = null } = options;
  if (options.maxSimulations === undefined)
    throw invalidArgument("maxSimulations", undefined, "given: sequential halving divides it");
  if (config.proposals) throw invalidArgument("proposals", true, "false: all actions must be known");
  if (config.solver) throw invalidArgument("solver", true, "false: the schedule of visits knows no proofs");
  if (config.inFlight === "virtual-loss")
    throw invalidArgument("inFlight", "virtual-loss", "count or ignore: the schedule counts visits");
  if (gumbel !== null && (gumbel.length !== config.root.actions?.length || !gumbel.every(Number.isFinite)))
    throw invalidArgument("gumbel", gumbel, "one finite number an action");
  return {
    considered: real("considered", options.considered, TREE_DEFAULTS.gumbel.considered, { from: 1, to: LARGEST }),
    visitInit: real("visitInit", options.visitInit, TREE_DEFAULTS.gumbel.visitInit, { from: 0, to: LARGEST }),
    valueScale: real("valueScale", options.valueScale, TREE_DEFAULTS.gumbel.valueScale, { from: 0, to: LARGEST }),
    scale: real("scale", options.scale, TREE_DEFAULTS.gumbel.scale, { from: 0, to: LARGEST }),
    gumbel: gumbel === null ? null : [...gumbel],
  };
}

/** Of those that have as many visits as it is the turn of: the greatest g + logit + σ(completed return). */
function selectAtRoot(state: TreeState<GumbelParams>, choices: Choices): number {
  const { config, params } = state;
  const considered = Math.min(Math.floor(params.considered), choices.count);
  const wanted = consideredVisits(considered, config.maxSimulations, totalVisits(state, choices));
  const scores = rootScores(state, choices);
  let best = -1;
  let highest = 0;
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.blocked[index] === 1 || allVisits(state, choices, index) !== wanted) continue;
    const score = scores[index] as number;
    if (best >= 0 && !(score > highest)) continue;
    best = index;
    highest = score;
  }
  if (best >= 0) return best;
  // Nobody stands where the schedule wants one: the tree was kept from an earlier root, or actions were rejected.
  if (choices.isWaiting) return -1;
  return choices.best((index) => -allVisits(state, choices, index));
}

/** argmax of improved policy - n / (1 + Σ n): visits follow the improved policy. */
function selectBelow(state: TreeState<GumbelParams>, choices: Choices): number {
  const improved = softmaxOf(improvedLogits(state, choices), choices.count);
  const share = 1 + totalVisits(state, choices);
  let best = -1;
  let highest = 0;
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.blocked[index] === 1) continue;
    const score = (improved[index] as number) - allVisits(state, choices, index) / share;
    if (best >= 0 && !(score > highest)) continue;
    best = index;
    highest = score;
  }
  return best;
}

function recommend(state: TreeState<GumbelParams>, choices: Choices): Recommendation {
  const probabilities = Array.from(softmaxOf(improvedLogits(state, choices), choices.count).subarray(0, choices.count));
  const scores = rootScores(state, choices).slice(0, choices.count);
  const visits = choices.visits.subarray(0, choices.count);
  const most = visits.reduce((largest, count) => Math.max(largest, count), 0);
  return {
    score: (index) => (visits[index] === most ? (scores[index] as number) : Number.NEGATIVE_INFINITY),
    probabilities,
  };
}

/** Overwritten by the next call, like what `improvedLogits` returns. */
function rootScores(state: TreeState<GumbelParams>, choices: Choices): Float64Array {
  const noise = rootGumbels(state);
  const scores = improvedLogits(state, choices);
  for (let index = 0; index < choices.count; index += 1)
    scores[index] = state.params.scale * (noise[choices.slot[index] as number] ?? 0) + (scores[index] as number);
  return scores;
}

const known = new WeakMap<object, { readonly root: number; readonly noise: readonly number[] }>();

/** Drawn once for each root, by its depth. Kept only to save the work: it could be drawn again at any time. */
function rootGumbels({ tree, seed, params, config }: TreeState<GumbelParams>): readonly number[] {
  const depth = tree.columns.depth.get(tree.root);
  if (params.gumbel !== null && depth === 0) return params.gumbel;
  const kept = known.get(config);
  if (kept?.root === tree.root) return kept.noise;
  const noise = gumbels({ seed, depth, count: tree.actions(tree.root)?.length ?? 0 });
  known.set(config, { root: tree.root, noise });
  return noise;
}

// Scratch that outlives a call only to save allocations.
let scratch = new Float64Array(64);

/** logit + σ(completed return), where σ(q) = (visitInit + max n) · valueScale · q. Overwritten by the next call. */
function improvedLogits(state: TreeState<GumbelParams>, choices: Choices): Float64Array {
  const { visitInit, valueScale } = state.params;
  const { count, visits, q, prior } = choices;
  if (scratch.length < count) scratch = new Float64Array(2 * count);
  const mixed = mixedValue(choices);
  let most = 0;
  let lowest = Number.POSITIVE_INFINITY;
  let highest = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < count; index += 1) {
    const through = visits[index] as number;
    const completed = through > 0 ? (q[index] as number) : mixed;
    scratch[index] = completed;
    most = Math.max(most, through);
    lowest = Math.min(lowest, completed);
    highest = Math.max(highest, completed);
  }
  const factor = (visitInit + most) * valueScale;
  let last = Number.NaN;
  let logitOfLast = 0;
  for (let index = 0; index < count; index += 1) {
    const own = prior[index] as number;
    // Priors are often alike, and logarithms are dear.
    if (own !== last) {
      last = own;
      logitOfLast = logit(own);
    }
    scratch[index] = logitOfLast + factor * normalise(scratch[index] as number, lowest, highest);
  }
  return scratch;
}

function logit(prior: number): number {
  return prior > 0 ? Math.log(prior) : LEAST_LOGIT;
}

/**
 * What actions without visits count as: (raw + Σn · Σ p q / Σ p) / (Σn + 1), both inner sums over the actions with visits. Returns of
 * all actions are then taken between their lowest and highest.
 */
function mixedValue({ count, visits, q, prior: priors, raw, totalVisits: total }: Choices): number {
  let weight = 0;
  let mean = 0;
  for (let index = 0; index < count; index += 1) {
    if (visits[index] === 0) continue;
    // A prior of 0 still counts a little: its action was visited.
    const prior = Math.max(priors[index] as number, Number.EPSILON);
    weight += prior;
    mean = mean * ((weight - prior) / weight) + (q[index] as number) * (prior / weight);
  }
  return weight === 0 ? raw : raw / (total + 1) + mean * (total / (total + 1));
}

/** exp(logit) divided by the sum of all, in place; never overflows, because the largest is taken away first. */
function softmaxOf(logits: Float64Array, count: number): Float64Array {
  let largest = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < count; index += 1) largest = Math.max(largest, logits[index] as number);
  let sum = 0;
  for (let index = 0; index < count; index += 1) {
    const weight = Math.exp((logits[index] as number) - largest);
    logits[index] = weight;
    sum += weight;
  }
  for (let index = 0; index < count; index += 1) logits[index] = (logits[index] as number) / sum;
  return logits;
}
