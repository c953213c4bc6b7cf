import { type CellKnowledge, type KnowledgeWeights, recordKnowledge } from "./cell-knowledge.js";
import { checkKeys, flag, integer, real } from "./check-options.js";
import { type CellWeights, type CountWeight, DEFAULTS } from "./defaults.js";
import { invalidArgument } from "./errors.js";

/** The state that everything starts from. */
export interface RootState {
  readonly cell: string;
  /** Never released by the search. Absent: the caller knows how to start from the root. */
  readonly checkpoint?: string;
  /** Default 0. */
  readonly score?: number;
  readonly landmarks?: Readonly<Record<string, string>>;
  /** As `Visit.sample`. Default: the cell. */
  readonly sample?: string;
  readonly knowledge?: CellKnowledge;
}

/** Options of all searches over archives. Steps are those of the environment. */
export interface ArchiveOptions {
  readonly root: RootState;
  /** Steps of a trial, at least 1. Default 100. */
  readonly stepsPerTrial?: number;
  /**
   * A trial knows the outcomes of exactly the trials `window` or more before it, whatever the number of workers: that is what
   * makes the tree the same for one worker and for many. At most so many trials run at once. Default 8.
   */
  readonly window?: number;
  /** Replace a cell's state when the score is greater, or equal and the path shorter; false: only when shorter. Default true. */
  readonly optimiseScore?: boolean;
  /** How often a trial is tried before it is forgotten. Default 3. */
  readonly maxAttempts?: number;
  /** Nodes kept, the root included; at that many no new trial is given. Default 1,000,000. */
  readonly maxNodes?: number;
  /** Steps from the root; trials end there, and cells there are not chosen. Default 1,000,000. */
  readonly maxLength?: number;
  /** Environment steps in all; the last trial is cut to fit. Default: no limit. */
  readonly maxSteps?: number;
  /** Trials in all, also those that took no step because they were rejected or lost. Default: no limit. */
  readonly maxTrials?: number;
}

/** Options of `goExplore`. */
export interface GoExploreOptions extends ArchiveOptions {
  /** Default: those of Go-Explore's code, see `DEFAULTS`. Terms that are left out have their default. */
  readonly weights?: Partial<Omit<CellWeights, "knowledge">> & { readonly knowledge?: Partial<KnowledgeWeights> };
  /** Set the counters of a cell to 0 when its state is replaced. Default false. */
  readonly resetCellOnUpdate?: boolean;
  /** Trials under way count as if they had been chosen already. Default true. */
  readonly countInFlight?: boolean;
  /**
   * Go back to a cell by a policy instead of a checkpoint: every trial starts from the root, is led by the cells on the way
   * (`RolloutTrial.returning`) and explores from where it comes to. For environments that are not deterministic, or keep no states.
   * Absent: by checkpoints.
   */
  readonly policyReturn?: {
    /** Steps that the way may take, as a multiple of its length: at least 1. Default 2. */
    readonly patience?: number;
  };
}

export type RandomRolloutsOptions = ArchiveOptions;

/** Options of `bestOfN`. */
export interface BestOfNOptions extends Omit<ArchiveOptions, "maxTrials"> {
  /** Trials in all. */
  readonly n: number;
}

/** Options of searches that end when a score is reached. */
export interface TargetOptions {
  /** A state with this score, or a greater one, is a solution: no trial is asked after one is found. Absent: there is none. */
  readonly target?: number;
}

export type IndependentRetryOptions = ArchiveOptions & TargetOptions;
export type RandomBranchOptions = ArchiveOptions & TargetOptions;
export type AdaptiveBudgetOptions = Omit<GoExploreOptions, "policyReturn"> & TargetOptions;

/** All options, checked and present. */
export interface ArchiveConfig {
  readonly root: {
    readonly cell: string;
    readonly checkpoint: string | null;
    readonly score: number;
    readonly landmarks: readonly (readonly [kind: string, key: string])[];
    /** Only where they were given. */
    readonly sample?: string;
    readonly knowledge?: CellKnowledge;
  };
  readonly stepsPerTrial: number;
  readonly window: number;
  readonly optimiseScore: boolean;
  readonly maxAttempts: number;
  readonly maxNodes: number;
  readonly maxLength: number;
  readonly maxSteps: number;
  readonly maxTrials: number;
  readonly weights: CellWeights;
  readonly resetCellOnUpdate: boolean;
  readonly countInFlight: boolean;
  /** Only where returns are by a policy. */
  readonly policyReturn?: { readonly patience: number };
  /** Only where there is one, so that states of searches without have not changed. */
  readonly target?: number;
}

const LARGEST_WEIGHT = 1e6;
const LARGEST_POWER = 16;
const LARGEST_WINDOW = 65_536;
const LARGEST_ATTEMPTS = 1_000;
const LARGEST_NODES = 2 ** 31;
const KNOWN_OPTIONS = new Set([
  "root",
  "stepsPerTrial",
  "window",
  "optimiseScore",
  "maxAttempts",
  "maxNodes",
  "maxLength",
  "maxSteps",
  "maxTrials",
]);
const KNOWN_ADAPTIVE_OPTIONS = new Set([...KNOWN_OPTIONS, "weights", "resetCellOnUpdate", "countInFlight"]);
const KNOWN_GO_EXPLORE_OPTIONS = new Set([...KNOWN_ADAPTIVE_OPTIONS, "policyReturn"]);
const KNOWN_POLICY_RETURN = new Set(["patience"]);
const LARGEST_PATIENCE = 1_000;
const KNOWN_WEIGHTS = new Set(["seen", "chosen", "actions", "chosenSinceNew", "scoreHigh", "knowledge"]);
const KNOWN_KNOWLEDGE = new Set(["neighbours", "noLower", "noHigher", "lowLevel"]);
const KNOWN_ROOT = new Set(["cell", "checkpoint", "score", "landmarks", "sample", "knowledge"]);

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveGoExplore(options: GoExploreOptions): ArchiveConfig {
  checkKeys(options, KNOWN_GO_EXPLORE_OPTIONS, "");
  return Object.freeze({
    ...resolveShared(options),
    weights: resolveWeights(options.weights),
    resetCellOnUpdate: flag("resetCellOnUpdate", options.resetCellOnUpdate, DEFAULTS.resetCellOnUpdate),
    countInFlight: flag("countInFlight", options.countInFlight, DEFAULTS.countInFlight),
    ...resolvePolicyReturn(options.policyReturn),
  });
}

function resolvePolicyReturn(given: GoExploreOptions["policyReturn"]): Pick<ArchiveConfig, "policyReturn"> {
  if (given === undefined) return {};
  checkKeys(given, KNOWN_POLICY_RETURN, "policyReturn.");
  const limits = { from: 1, to: LARGEST_PATIENCE };
  const patience = real("policyReturn.patience", given.patience, DEFAULTS.returnPatience, limits);
  return { policyReturn: Object.freeze({ patience }) };
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveRandomRollouts(options: RandomRolloutsOptions): ArchiveConfig {
  checkKeys(options, KNOWN_OPTIONS, "");
  return Object.freeze({
    ...resolveShared(options),
    weights: resolveWeights(undefined),
    resetCellOnUpdate: false,
    countInFlight: false,
  });
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveBestOfN({ n, ...options }: BestOfNOptions): ArchiveConfig {
  checkKeys(options, new Set([...KNOWN_OPTIONS].filter((option) => option !== "maxTrials")), "");
  const maxTrials = integer("n", n, Number.NaN, Number.MAX_SAFE_INTEGER);
  return resolveRandomRollouts({ ...options, maxTrials });
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveIndependentRetry({ target, ...options }: IndependentRetryOptions): ArchiveConfig {
  return withTarget(resolveRandomRollouts(options), target);
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveRandomBranch({ target, ...options }: RandomBranchOptions): ArchiveConfig {
  const config = resolveRandomRollouts(options);
  // A power of 0 makes all cells alike, however often they were chosen.
  const nothing = { weight: 0, power: 1 };
  const weights = resolveWeights({
    seen: nothing,
    actions: nothing,
    chosenSinceNew: nothing,
    chosen: { weight: 1, power: 0 },
  });
  return withTarget({ ...config, weights }, target);
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveAdaptiveBudget({ target, ...options }: AdaptiveBudgetOptions): ArchiveConfig {
  checkKeys(options, KNOWN_ADAPTIVE_OPTIONS, "");
  if (options.resetCellOnUpdate)
    throw invalidArgument(
      "resetCellOnUpdate",
      true,
      "false: the bandit reads from the counters how often cells were chosen",
    );
  return withTarget(resolveGoExplore(options), target);
}

function withTarget(config: ArchiveConfig, target: number | undefined): ArchiveConfig {
  if (target === undefined) return config;
  if (!Number.isFinite(target)) throw invalidArgument("target", target, "a finite number");
  return Object.freeze({ ...config, target });
}

type SharedConfig = Omit<ArchiveConfig, "target" | "policyReturn" | "weights" | "resetCellOnUpdate" | "countInFlight">;

function resolveShared(options: ArchiveOptions): SharedConfig {
  return {
    root: resolveRoot(options.root),
    stepsPerTrial: integer("stepsPerTrial", options.stepsPerTrial, DEFAULTS.stepsPerTrial, Number.MAX_SAFE_INTEGER),
    window: integer("window", options.window, DEFAULTS.window, LARGEST_WINDOW),
    optimiseScore: flag("optimiseScore", options.optimiseScore, DEFAULTS.optimiseScore),
    maxAttempts: integer("maxAttempts", options.maxAttempts, DEFAULTS.maxAttempts, LARGEST_ATTEMPTS),
    maxNodes: integer("maxNodes", options.maxNodes, DEFAULTS.maxNodes, LARGEST_NODES),
    maxLength: integer("maxLength", options.maxLength, DEFAULTS.maxLength, Number.MAX_SAFE_INTEGER),
    maxSteps: integer("maxSteps", options.maxSteps, DEFAULTS.maxSteps, Number.MAX_SAFE_INTEGER),
    maxTrials: integer("maxTrials", options.maxTrials, DEFAULTS.maxTrials, Number.MAX_SAFE_INTEGER),
  };
}

function resolveRoot(root: RootState): ArchiveConfig["root"] {
  checkKeys(root, KNOWN_ROOT, "root.");
  if (!isKey(root.cell))
    throw invalidArgument("root.cell", root.cell, `a string of at most ${DEFAULTS.maxKeyLength} characters`);
  const score = root.score ?? 0;
  if (!Number.isFinite(score)) throw invalidArgument("root.score", score, "a finite number");
  const checkpoint = root.checkpoint ?? null;
  if (checkpoint !== null && !isKey(checkpoint)) throw invalidArgument("root.checkpoint", checkpoint, "a string");
  if (typeof (root.landmarks ?? {}) !== "object") throw invalidArgument("root.landmarks", root.landmarks, "an object");
  const landmarks = Object.freeze(sortedLandmarks(root.landmarks ?? {}));
  for (const [kind, key] of landmarks) {
    if (!isKey(kind) || !isKey(key)) throw invalidArgument(`root.landmarks.${kind}`, key, "a string");
  }
  const { cell, sample } = root;
  const knowledge =
    root.knowledge === undefined
      ? {}
      : { knowledge: recordKnowledge(root.knowledge, "root.knowledge", invalidArgument) };
  if (sample !== undefined && !isKey(sample)) throw invalidArgument("root.sample", sample, "a string");
  return Object.freeze({
    cell,
    checkpoint,
    score,
    landmarks,
    ...(sample === undefined ? {} : { sample }),
    ...knowledge,
  });
}

function resolveWeights(weights: GoExploreOptions["weights"]): CellWeights {
  const given = weights ?? {};
  checkKeys(given, KNOWN_WEIGHTS, "weights.");
  const scoreHigh = given.scoreHigh ?? DEFAULTS.weights.scoreHigh;
  checkNumber("weights.scoreHigh", scoreHigh, LARGEST_WEIGHT);
  return Object.freeze({
    seen: countWeight("seen", given.seen),
    chosen: countWeight("chosen", given.chosen),
    actions: countWeight("actions", given.actions),
    chosenSinceNew: countWeight("chosenSinceNew", given.chosenSinceNew),
    scoreHigh,
    ...(given.knowledge === undefined ? {} : { knowledge: resolveKnowledge(given.knowledge) }),
  });
}

function resolveKnowledge(given: Partial<KnowledgeWeights>): KnowledgeWeights {
  checkKeys(given, KNOWN_KNOWLEDGE, "weights.knowledge.");
  const weights = { ...DEFAULTS.knowledge, ...given };
  for (const name of ["noLower", "noHigher"] as const)
    checkNumber(`weights.knowledge.${name}`, weights[name], LARGEST_WEIGHT);
  checkNumber("weights.knowledge.lowLevel", weights.lowLevel, 1);
  if (typeof weights.neighbours !== "object" || weights.neighbours === null)
    throw invalidArgument("weights.knowledge.neighbours", weights.neighbours, "numbers by kind");
  for (const [kind, weight] of Object.entries(weights.neighbours))
    checkNumber(`weights.knowledge.neighbours.${kind}`, weight, LARGEST_WEIGHT);
  return Object.freeze({ ...weights, neighbours: Object.freeze({ ...weights.neighbours }) });
}

function countWeight(
  name: Exclude<keyof CellWeights, "scoreHigh" | "knowledge">,
  given: CountWeight | undefined,
): CountWeight {
  const resolved = given ?? DEFAULTS.weights[name];
  if (typeof resolved !== "object" || resolved === null)
    throw invalidArgument(`weights.${name}`, given, "{ weight, power }");
  checkNumber(`weights.${name}.weight`, resolved.weight, LARGEST_WEIGHT);
  checkNumber(`weights.${name}.power`, resolved.power, LARGEST_POWER);
  return Object.freeze({ weight: resolved.weight, power: resolved.power });
}

function checkNumber(field: string, value: unknown, largest: number): void {
  if (typeof value !== "number" || !(value >= 0 && value <= largest)) {
    throw invalidArgument(field, value, `a number from 0 to ${largest}`);
  }
}

/** Whether a value is a string that is short enough to be kept: names of cells, actions and the like come from a guest. */
export function isKey(value: unknown): value is string {
  return typeof value === "string" && value.length <= DEFAULTS.maxKeyLength;
}

/** In the order of UTF-16 code units, so that the order in which a guest wrote them changes nothing. */
export function sortedLandmarks(landmarks: Readonly<Record<string, string>>): [kind: string, key: string][] {
  return Object.entries(landmarks).sort(([left], [right]) => (left < right ? -1 : left > right ? 1 : 0));
}
