import { checkKeys, flag, integer, oneOf, real } from "../check-options.js";
import { isKey } from "../config.js";
import { invalidArgument } from "../errors.js";
import { checkActions, checkPriors } from "./actions.js";
import { TREE_DEFAULTS } from "./defaults.js";

/** The state that is searched from. */
export interface TreeRoot {
  /** What can be done there, in an order that never changes. Absent with `proposals`: actions are proposed one at a time. */
  readonly actions?: readonly string[];
  /** How likely each action is good: one number of at least 0 an action, of any sum. All 0, or absent: all alike. */
  readonly priors?: readonly number[];
  /** Actions that may not be taken are false: they are treated as if they were not listed. */
  readonly mask?: readonly boolean[];
  /** What a model says the state is worth, for player 0. Absent: not known, and the root counts as not evaluated. */
  readonly value?: number;
  /** Who is to move. Default 0. */
  readonly player?: 0 | 1;
  readonly key?: string;
  /** Never released by the search. */
  readonly checkpoint?: string;
}

/** A node may have ⌈k · N^alpha⌉ children, where N counts the simulations that came through, those under way included. */
export interface Widening {
  /** Above 0. */
  readonly k: number;
  /** From 0 to 1. */
  readonly alpha: number;
}

/** How simulations under way are counted while others are chosen. */
export type InFlightRule = "count" | "virtual-loss" | "ignore";

/** Lowest and highest return that is possible, or `observed`: the lowest and highest that were seen so far. */
export type ReturnRange = "observed" | readonly [lowest: number, highest: number];

/** Options of all searches over trees. */
export interface TreeOptions {
  readonly root: TreeRoot;
  /** 2: zero-sum; every reward and value is given for player 0, and player 1 wants it low. Default 1. */
  readonly players?: 1 | 2;
  /** One action can lead to different states, told apart by their keys. Default false. */
  readonly stochastic?: boolean;
  /** Trials may ask for a new action (`action: null`) besides those that are listed. Default false. */
  readonly proposals?: boolean;
  /** States with equal keys are one state. Default false. */
  readonly transpositions?: boolean;
  /**
   * What is proven is used: states all of whose ends are known are not searched again, nor the rest of a state where the mover has a
   * proven return as high as the range allows (MCTS-Solver). Default false.
   */
  readonly solver?: boolean;
  /** What a return is worth one decision earlier, above 0 and at most 1. */
  readonly discount?: number;
  /** Returns outside of given bounds are refused. Default `observed`. */
  readonly range?: ReturnRange;
  /** Progressive widening of actions. Default: none, except k 1 and alpha .5 with `proposals`. */
  readonly widening?: Widening;
  /** Progressive widening of an action's outcomes, with `stochastic`. Default: every simulation samples anew. */
  readonly outcomeWidening?: Widening;
  /** Default `count`. */
  readonly inFlight?: InFlightRule;
  /** Lost visits that a simulation under way stands for, with `inFlight: "virtual-loss"`. Default 1. */
  readonly virtualLoss?: number;
  /**
   * A simulation knows the results of exactly the trials `window` or more before it, whatever the number of workers; at most so
   * many trials run at once. Default 8.
   */
  readonly window?: number;
  /** How often a trial is tried before it is forgotten. Default 3. */
  readonly maxAttempts?: number;
  /** Rows of the tree. Default 1,000,000. */
  readonly maxNodes?: number;
  /** Decisions from the root; a state there is not searched further. Default 10,000. */
  readonly maxDepth?: number;
  /** Children of one node. Default 100,000. */
  readonly maxWidth?: number;
  /** Simulations in all, those included that need no environment because they end in a state that is known. Default: no limit. */
  readonly maxSimulations?: number;
  /** Trials in all. Default: no limit. */
  readonly maxTrials?: number;
}

export interface TreeConfig {
  readonly root: {
    readonly actions: readonly string[] | null;
    readonly priors: readonly number[] | null;
    readonly value: number | null;
    readonly player: 0 | 1;
    readonly key: string | null;
    readonly checkpoint: string | null;
  };
  readonly players: 1 | 2;
  readonly stochastic: boolean;
  readonly proposals: boolean;
  readonly transpositions: boolean;
  readonly solver: boolean;
  readonly discount: number;
  readonly range: ReturnRange;
  readonly widening: Widening | null;
  readonly outcomeWidening: Widening | null;
  readonly inFlight: InFlightRule;
  readonly virtualLoss: number;
  readonly window: number;
  readonly maxAttempts: number;
  readonly maxNodes: number;
  readonly maxDepth: number;
  readonly maxWidth: number;
  readonly maxSimulations: number;
  readonly maxTrials: number;
}

const KNOWN_OPTIONS = [
  "root",
  "players",
  "stochastic",
  "proposals",
  "transpositions",
  "solver",
  "discount",
  "range",
  "widening",
  "outcomeWidening",
  "inFlight",
  "virtualLoss",
  "window",
  "maxAttempts",
  "maxNodes",
  "maxDepth",
  "maxWidth",
  "maxSimulations",
  "maxTrials",
] as const;
const KNOWN_ROOT = new Set(["actions", "priors", "mask", "value", "player", "key", "checkpoint"]);
const KNOWN_WIDENING = new Set(["k", "alpha"]);
const LARGEST_WINDOW = 4_096;
const LARGEST_ATTEMPTS = 1_000;
const LARGEST_NODES = 100_000_000;
const LARGEST_DEPTH = 1_000_000;
const LARGEST_K = 1_000_000;

/**
 * @param own The options of the algorithm itself.
 * @throws SearchError `INVALID_ARGUMENT` naming the field.
 */
export function resolveTreeOptions(options: TreeOptions, own: readonly string[]): TreeConfig {
  checkKeys(options, new Set([...KNOWN_OPTIONS, ...own]), "");
  const { players = 1 } = options;
  if (players !== 1 && players !== 2) throw invalidArgument("players", players, "1 or 2");
  const stochastic = flag("stochastic", options.stochastic, false);
  const proposals = flag("proposals", options.proposals, false);
  const transpositions = flag("transpositions", options.transpositions, false);
  if (stochastic && transpositions) throw invalidArgument("transpositions", true, "false where stochastic is true");
  const solver = flag("solver", options.solver, false);
  if (stochastic && solver) throw invalidArgument("solver", true, "false where stochastic is true");
  if (stochastic && proposals) throw invalidArgument("proposals", true, "false where stochastic is true");
  if (!stochastic && options.outcomeWidening !== undefined)
    throw invalidArgument("outcomeWidening", options.outcomeWidening, "left out where stochastic is not true");
  const widening = options.widening ?? (proposals ? TREE_DEFAULTS.widening : undefined);
  return Object.freeze({
    root: resolveRoot(options.root, { players, proposals }),
    players,
    stochastic,
    proposals,
    transpositions,
    solver,
    discount: real("discount", options.discount, TREE_DEFAULTS.discount, { from: Number.MIN_VALUE, to: 1 }),
    range: resolveRange(options.range),
    widening: widening === undefined ? null : resolveWidening("widening", widening),
    outcomeWidening:
      options.outcomeWidening === undefined ? null : resolveWidening("outcomeWidening", options.outcomeWidening),
    inFlight: oneOf("inFlight", options.inFlight, TREE_DEFAULTS.inFlight, ["count", "virtual-loss", "ignore"]),
    virtualLoss: real("virtualLoss", options.virtualLoss, TREE_DEFAULTS.virtualLoss, { from: 0, to: LARGEST_K }),
    ...resolveCaps(options),
  });
}

type Caps = Pick<
  TreeConfig,
  "window" | "maxAttempts" | "maxNodes" | "maxDepth" | "maxWidth" | "maxSimulations" | "maxTrials"
>;

function resolveCaps(options: TreeOptions): Caps {
  const count = (field: keyof Caps, largest: number): number =>
    integer(field, options[field], TREE_DEFAULTS[field], largest);
  return {
    window: count("window", LARGEST_WINDOW),
    maxAttempts: count("maxAttempts", LARGEST_ATTEMPTS),
    maxNodes: count("maxNodes", LARGEST_NODES),
    maxDepth: count("maxDepth", LARGEST_DEPTH),
    maxWidth: count("maxWidth", LARGEST_NODES),
    maxSimulations: count("maxSimulations", Number.MAX_SAFE_INTEGER),
    maxTrials: count("maxTrials", Number.MAX_SAFE_INTEGER),
  };
}

interface RootRules {
  readonly players: 1 | 2;
  readonly proposals: boolean;
}

function resolveRoot(root: TreeRoot, { players, proposals }: RootRules): TreeConfig["root"] {
  checkKeys(root, KNOWN_ROOT, "root.");
  if (root.actions === undefined && !proposals)
    throw invalidArgument("root.actions", undefined, "an array of strings where proposals is not true");
  const { player = 0, value = null, key = null, checkpoint = null } = root;
  if (player !== 0 && !(player === 1 && players === 2)) throw invalidArgument("root.player", player, "0, or 1 of 2");
  if (value !== null && !Number.isFinite(value)) throw invalidArgument("root.value", value, "a finite number");
  for (const [field, text] of Object.entries({ key, checkpoint }))
    if (text !== null && !isKey(text)) throw invalidArgument(`root.${field}`, text, "a short string");
  const fail = (field: string, given: unknown, wanted: string) => invalidArgument(`root.${field}`, given, wanted);
  const actions = checkActions(root, fail);
  return Object.freeze({ actions, priors: checkPriors(root, fail), value, player, key, checkpoint });
}

function resolveRange(range: ReturnRange | undefined): ReturnRange {
  if (range === undefined || range === "observed") return "observed";
  const [lowest, highest] = Array.isArray(range) ? (range as readonly unknown[]) : [];
  const isPair = Number.isFinite(lowest) && Number.isFinite(highest) && (lowest as number) < (highest as number);
  if (!isPair || range.length !== 2)
    throw invalidArgument("range", range, '"observed" or two finite numbers, the lower one first');
  return Object.freeze([lowest as number, highest as number] as const);
}

function resolveWidening(field: string, widening: Widening): Widening {
  checkKeys(widening, KNOWN_WIDENING, `${field}.`);
  return Object.freeze({
    k: real(`${field}.k`, widening.k, Number.NaN, { from: Number.MIN_VALUE, to: LARGEST_K }),
    alpha: real(`${field}.alpha`, widening.alpha, Number.NaN, { from: 0, to: 1 }),
  });
}
