import { checkKeys, oneOf, real } from "../check-options.js";
import { drawUniform } from "../draws.js";
import { invalidArgument } from "../errors.js";
import { type Choices, totalVisits } from "./choices.js";
import type { TreeConfig, TreeOptions } from "./config.js";
import { TREE_DEFAULTS } from "./defaults.js";
import { dirichlet } from "./noise.js";
import type { Recommendation } from "./policy.js";
import { averageBackup } from "./rules.js";
import type { TreeState } from "./state.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { createTreeSearch } from "./tree-search.js";

/** Noise that is mixed into the root's priors: (1 - fraction) · prior + fraction · noise. */
export interface RootNoise {
  /** Of a symmetric Dirichlet distribution, above 0. Default .3. */
  readonly alpha?: number;
  /** From 0 (none) to 1. Default .25. */
  readonly fraction?: number;
  /** The noise itself, one number an action, instead of a draw. */
  readonly given?: readonly number[];
}

/** Options of `puct`. */
export interface PuctOptions extends TreeOptions {
  /**
   * - `alphazero`: returns as they are, in [-1, 1]; actions without visits count as 0.
   * - `muzero`: returns between the lowest and highest of the state's value and its actions' returns; actions without visits count as
   *   the lowest.
   *
   * Default `muzero`.
   */
  readonly form?: "alphazero" | "muzero";
  /** c(N) = init + ln((N + base + 1) / base). Default 1.25 and 19,652. */
  readonly init?: number;
  readonly base?: number;
  /** Default: none. For self-play `{}` gives the paper's. */
  readonly noise?: RootNoise;
  /** Recommended probabilities are proportional to visits^(1 / temperature); 0: all on the most visited. Default 1. */
  readonly temperature?: number;
}

interface PuctParams {
  readonly form: "alphazero" | "muzero";
  readonly init: number;
  readonly base: number;
  readonly noise: {
    readonly alpha: number;
    readonly fraction: number;
    readonly given: readonly number[] | null;
  } | null;
  readonly temperature: number;
}

const KNOWN_NOISE = new Set(["alpha", "fraction", "given"]);
const LARGEST = 1e6;

/**
 * Tree search guided by priors and values of a model.
 *
 * Sources: AlphaZero: Silver and others, Science 362 (2018); MuZero: Schrittwieser and others, Nature 588 (2020), arXiv 1911.08265.
 */
export const puct: TreeSearch<PuctOptions, PuctParams> = createTreeSearch<PuctOptions, PuctParams>({
  name: "puct",
  optionNames: ["form", "init", "base", "noise", "temperature"],
  resolve,
  select,
  backup: averageBackup,
  recommend,
});

function resolve(options: PuctOptions, config: TreeConfig): PuctParams {
  const form = oneOf("form", options.form, "muzero", ["alphazero", "muzero"]);
  if (form === "alphazero" && (config.range === "observed" || config.range[0] < -1 || config.range[1] > 1))
    throw invalidArgument("range", options.range, "within [-1, 1] with form alphazero");
  if (config.proposals) throw invalidArgument("proposals", true, "false: puct needs a prior of every action");
  return {
    form,
    init: real("init", options.init, TREE_DEFAULTS.puct.init, { from: 0, to: LARGEST }),
    base: real("base", options.base, TREE_DEFAULTS.puct.base, { from: 1, to: Number.MAX_SAFE_INTEGER }),
    noise: options.noise === undefined ? null : resolveNoise(options.noise, config.root.actions?.length ?? 0),
    temperature: real("temperature", options.temperature, 1, { from: 0, to: LARGEST }),
  };
}

function resolveNoise(noise: RootNoise, count: number): NonNullable<PuctParams["noise"]> {
  checkKeys(noise, KNOWN_NOISE, "noise.");
  const { given = null } = noise;
  if (given !== null && (given.length !== count || !given.every((share) => Number.isFinite(share) && share >= 0)))
    throw invalidArgument("noise.given", given, "one finite number of at least 0 an action");
  return {
    alpha: real("noise.alpha", noise.alpha, TREE_DEFAULTS.noise.alpha, { from: 1e-3, to: LARGEST }),
    fraction: real("noise.fraction", noise.fraction, TREE_DEFAULTS.noise.fraction, { from: 0, to: 1 }),
    given: given === null ? null : [...given],
  };
}

function select(state: TreeState<PuctParams>, choices: Choices): number {
  const { config, params, tree } = state;
  const { init, base, form, noise: mix } = params;
  const { count, blocked, prior: priors, visits, inFlight } = choices;
  // A state counts its own evaluation: N = 1 + visits of its actions, so that priors decide the first choice.
  const total = 1 + totalVisits(state, choices);
  const factor = (init + Math.log((total + base + 1) / base)) * Math.sqrt(total);
  const noise = choices.node === tree.root ? rootNoise(state) : null;
  const fraction = noise === null || mix === null ? 0 : mix.fraction;
  const isLosing = config.inFlight === "virtual-loss";
  const underWay = isLosing ? config.virtualLoss : 1;
  const scale = form === "muzero" ? siblingScale(choices) : null;
  let best = -1;
  let highest = 0;
  // Written out, as `choices.best` has it: this is where time goes.
  for (let index = 0; index < count; index += 1) {
    if (blocked[index] === 1) continue;
    let prior = priors[index] as number;
    if (noise !== null) prior = (1 - fraction) * prior + fraction * (noise[choices.slot[index] as number] ?? 0);
    const through = (visits[index] as number) + underWay * (inFlight[index] as number);
    let q = scale === null ? plainReturn(state, choices, index) : scaledReturn(choices, index, scale);
    // Each simulation that is virtually lost returned the lowest, which is 0.
    if (scale !== null && isLosing && through > 0) q *= (visits[index] as number) / through;
    const score = q + (factor * prior) / (through + 1);
    if (best >= 0 && !(score > highest)) continue;
    best = index;
    highest = score;
  }
  return best;
}

/** AlphaZero's Q, with virtual loss as minigo has it: each simulation under way has returned -1 to the mover. */
function plainReturn({ config }: TreeState, choices: Choices, index: number): number {
  const visits = choices.visits[index] as number;
  const lost = config.inFlight === "virtual-loss" ? config.virtualLoss * (choices.inFlight[index] as number) : 0;
  if (visits + lost === 0) return 0;
  return ((choices.q[index] as number) * visits - lost) / (visits + lost);
}

/** Halves, so that the difference of two large numbers of different sign stays finite. */
interface Scale {
  readonly halfLowest: number;
  readonly halfWidth: number;
}

/**
 * From the lowest to the highest return of the actions that were tried. The state's own value takes part: a state that is worse than all
 * that was tried marks the rest as no better.
 */
function siblingScale({ count, visits, q, value }: Choices): Scale {
  let lowest = value;
  let highest = value;
  for (let index = 0; index < count; index += 1) {
    if (visits[index] === 0) continue;
    const own = q[index] as number;
    if (own < lowest) lowest = own;
    else if (own > highest) highest = own;
  }
  return { halfLowest: lowest / 2, halfWidth: highest / 2 - lowest / 2 };
}

/** 0 for the lowest and 1 for the highest return, and for what was not tried. */
function scaledReturn({ visits, q }: Choices, index: number, { halfLowest, halfWidth }: Scale): number {
  if (visits[index] === 0 || !(halfWidth > 0)) return 0;
  return Math.min(1, ((q[index] as number) / 2 - halfLowest) / halfWidth);
}

const known = new WeakMap<object, { readonly root: number; readonly noise: readonly number[] }>();

/** Drawn once for each root, by its depth. Kept only to save the work: it could be drawn again at any time. */
function rootNoise({ tree, seed, params, config }: TreeState<PuctParams>): readonly number[] | null {
  const { noise } = params;
  if (noise === null) return null;
  const depth = tree.columns.depth.get(tree.root);
  if (noise.given !== null && depth === 0) return noise.given;
  const kept = known.get(config);
  if (kept?.root === tree.root) return kept.noise;
  const drawn = dirichlet(noise.alpha, { seed, depth, count: tree.actions(tree.root)?.length ?? 0 });
  known.set(config, { root: tree.root, noise: drawn });
  return drawn;
}

function recommend({ params }: TreeState<PuctParams>, choices: Choices): Recommendation {
  const visits = Array.from(choices.visits.subarray(0, choices.count));
  return { score: (index) => visits[index] ?? 0, probabilities: visitProbabilities(visits, params.temperature) };
}

/** visits^(1 / temperature), divided by their sum; all 0 where there are no visits. */
export function visitProbabilities(visits: readonly number[], temperature: number): number[] {
  const most = visits.reduce((largest, count) => Math.max(largest, count), 0);
  if (most === 0) return visits.map(() => 0);
  // Divided by the largest first: a low temperature is a high power.
  const weights = visits.map((count) =>
    temperature === 0 ? Number(count === most) : (count / most) ** (1 / temperature),
  );
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/**
 * An action drawn from probabilities, for self-play: the one on which a named uniform draw falls.
 *
 * @returns Its index.
 * @throws SearchError `INVALID_ARGUMENT` where they add up to 0.
 */
export function drawAction(probabilities: readonly number[], seed: number, move: number): number {
  const sum = probabilities.reduce((total, share) => total + share, 0);
  if (!(sum > 0 && sum <= Number.MAX_VALUE)) throw invalidArgument("probabilities", sum, "numbers with a sum above 0");
  let rest = drawUniform(seed, "move", move) * sum;
  let last = 0;
  for (const [index, share] of probabilities.entries()) {
    if (share > 0) last = index;
    rest -= share;
    if (rest < 0) return index;
  }
  return last;
}
