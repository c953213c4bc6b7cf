import { checkKeys, oneOf, real } from "../check-options.js";
import { invalidArgument } from "../errors.js";
import { betaVariate, type Draw, draws, logGamma, normal } from "../gamma.js";
import type { Choices } from "./choices.js";
import type { TreeConfig, TreeOptions } from "./config.js";
import { TREE_DEFAULTS } from "./defaults.js";
import { averageBackup, mostVisits } from "./rules.js";
import type { TreeState } from "./state.js";
import { Kind, NONE } from "./tree.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { createTreeSearch } from "./tree-search.js";
import { normalise } from "./value.js";

/** Options of `abMcts`. */
export interface AbMctsOptions extends Omit<TreeOptions, "widening"> {
  /** What is believed of scores: a normal distribution of unknown mean and variance, or that they are shares of success. Default `gaussian`. */
  readonly distribution?: "gaussian" | "beta";
  /** Before any score is known, in units of the range. Terms that are left out have their default. */
  readonly prior?: Partial<GaussianPrior> & Partial<BetaPrior>;
}

/** Normal-inverse-chi-squared. */
export interface GaussianPrior {
  readonly mean: number;
  /** Weight of the mean, and of the variance, in observations. */
  readonly kappa: number;
  readonly nu: number;
  readonly variance: number;
}

/** Of a share of success: so many successes and failures were seen before the first score. */
export interface BetaPrior {
  readonly alpha: number;
  readonly beta: number;
}

interface AbMctsParams {
  readonly distribution: "gaussian" | "beta";
  readonly prior: GaussianPrior & BetaPrior;
}

/** Of normalised scores. */
interface Observed {
  readonly count: number;
  readonly mean: number;
  readonly meanSquare: number;
}

const NOTHING: Observed = { count: 0, mean: 0, meanSquare: 0 };
const KNOWN_PRIOR = new Set(["mean", "kappa", "nu", "variance", "alpha", "beta"]);
const LARGEST = 1e6;

/**
 * Adaptive branching: at every node Thompson sampling decides whether to propose one more child (wider) or to go on with one that is
 * there (deeper), and with which.
 *
 * Source: Inoue and others, "Wider or deeper? Scaling LLM inference-time compute with adaptive branching tree search", arXiv 2503.04412,
 * the variant with node aggregation (AB-MCTS-A).
 */
export const abMcts: TreeSearch<AbMctsOptions, AbMctsParams> = createTreeSearch<AbMctsOptions, AbMctsParams>({
  name: "ab-mcts-a",
  optionNames: ["distribution", "prior"],
  defaults: { proposals: true, range: [0, 1] },
  resolve,
  select,
  expand: ({ tree, config }, node) => tree.columns.childCount.get(node) < config.maxWidth,
  keepsSquares: () => true,
  backup: averageBackup,
  recommend: mostVisits,
});

function resolve(options: AbMctsOptions, config: TreeConfig): AbMctsParams {
  if (config.players === 2) throw invalidArgument("players", 2, "1: scores are one player's");
  if (config.range === "observed")
    throw invalidArgument("range", "observed", "two numbers: what is believed of scores has units");
  if (config.stochastic) throw invalidArgument("stochastic", true, "false: children are proposals");
  if ((options as TreeOptions).widening !== undefined)
    throw invalidArgument("widening", "present", "left out: sampling decides when to go wider");
  const prior = options.prior ?? {};
  checkKeys(prior, KNOWN_PRIOR, "prior.");
  const defaults = TREE_DEFAULTS.abMcts;
  const positive = (name: "kappa" | "nu" | "variance" | "alpha" | "beta"): number =>
    real(`prior.${name}`, prior[name], defaults[name], { from: 1e-6, to: LARGEST });
  return {
    distribution: oneOf("distribution", options.distribution, "gaussian", ["gaussian", "beta"]),
    prior: {
      mean: real("prior.mean", prior.mean, defaults.mean, { from: -LARGEST, to: LARGEST }),
      kappa: positive("kappa"),
      nu: positive("nu"),
      variance: positive("variance"),
      alpha: positive("alpha"),
      beta: positive("beta"),
    },
  };
}

/**
 * Three kinds of belief at a node, all from the same prior: of a new child, by the scores that its children had when they were new; of
 * going on, by the scores of everything below its children; of each child, by its own score and those below it.
 */
function select(state: TreeState<AbMctsParams>, choices: Choices): number {
  const children: { readonly index: number; readonly observed: Observed }[] = [];
  let fresh = -1;
  let made = NOTHING;
  let below = NOTHING;
  for (let index = 0; index < choices.count; index += 1) {
    const child = choices.child[index] as number;
    if (child === NONE) {
      if (fresh < 0 && choices.blocked[index] === 0) fresh = index;
      continue;
    }
    if (choices.visits[index] === 0) continue;
    const observed = observedOf(state, choices, index);
    const own = ownScore(state, child);
    made = joined(made, own);
    below = joined(below, without(observed, own));
    // Nothing can be made of what has ended.
    if (choices.blocked[index] === 0 && state.tree.kind(child) !== Kind.terminal) children.push({ index, observed });
  }
  if (children.length === 0) return fresh;
  const through = choices.totalVisits + choices.totalInFlight;
  const draw = (name: string): Draw => draws(state.seed, name, choices.node, through);
  if (fresh >= 0 && sample(state.params, made, draw("wider")) >= sample(state.params, below, draw("deeper")))
    return fresh;
  let best = -1;
  let highest = Number.NEGATIVE_INFINITY;
  for (const { index, observed } of children) {
    const value = sample(state.params, observed, draw(`child ${choices.slot[index]}`));
    if (value > highest) {
      best = index;
      highest = value;
    }
  }
  return best;
}

/** All scores that arrived at a child, its own included. */
function observedOf(state: TreeState, choices: Choices, index: number): Observed {
  const count = choices.visits[index] as number;
  const mean = share(state, choices.q[index] as number);
  return { count, mean, meanSquare: state.tree.columns.squares.get(choices.child[index] as number) };
}

function ownScore(state: TreeState, child: number): Observed {
  const { tree, config } = state;
  const mean = share(state, tree.columns.reward.get(child) + config.discount * tree.columns.raw.get(tree.state(child)));
  return { count: 1, mean, meanSquare: mean * mean };
}

function share({ config }: TreeState, value: number): number {
  return config.range === "observed" ? 0 : normalise(value, config.range[0], config.range[1]);
}

function joined(one: Observed, two: Observed): Observed {
  const count = one.count + two.count;
  if (count === 0) return NOTHING;
  const part = two.count / count;
  return {
    count,
    mean: one.mean + (two.mean - one.mean) * part,
    meanSquare: one.meanSquare + (two.meanSquare - one.meanSquare) * part,
  };
}

function without(all: Observed, part: Observed): Observed {
  const count = all.count - part.count;
  if (count <= 0) return NOTHING;
  return {
    count,
    mean: (all.count * all.mean - part.count * part.mean) / count,
    meanSquare: (all.count * all.meanSquare - part.count * part.meanSquare) / count,
  };
}

/** A draw of the mean score that is possible after what was observed. */
function sample({ distribution, prior }: AbMctsParams, observed: Observed, draw: Draw): number {
  const { count, mean } = observed;
  if (distribution === "beta") return betaVariate(prior.alpha + count * mean, prior.beta + count * (1 - mean), draw);
  const { kappa, nu, location, variance } = gaussianPosterior(prior, observed);
  const sigma = variance * nu * 0.5 * Math.exp(-logGamma(nu / 2, draw));
  return location + Math.sqrt(sigma / kappa) * normal(draw);
}

/** The conjugate update of the normal-inverse-chi-squared distribution. */
export function gaussianPosterior(
  prior: GaussianPrior,
  { count, mean, meanSquare }: Observed,
): { readonly location: number; readonly kappa: number; readonly nu: number; readonly variance: number } {
  const kappa = prior.kappa + count;
  const nu = prior.nu + count;
  const scatter = count * Math.max(0, meanSquare - mean * mean);
  const shift = (prior.kappa * count * (mean - prior.mean) ** 2) / kappa;
  return {
    location: (prior.kappa * prior.mean + count * mean) / kappa,
    kappa,
    nu,
    variance: (prior.nu * prior.variance + scatter + shift) / nu,
  };
}
