import { checkKeys, integer, real } from "../check-options.js";
import { DEFAULTS } from "../defaults.js";
import { invalidArgument } from "../errors.js";

/** Every default of the population searches, with its source. */
export const POPULATION_DEFAULTS = {
  /** MAP-Elites (Mouret and Clune, arXiv 1504.04909): whatever is better than the elite replaces it. */
  learningRate: 1,
  islands: 1,
  /** OpenEvolve's defaults: 50 generations, a tenth of the island. */
  migrateEvery: 50,
  migrationRate: 0.1,
  /** MAP-Elites begins with random solutions; how many is left open. */
  initial: 10,
  inspirations: 0,
  window: DEFAULTS.window,
  maxAttempts: DEFAULTS.maxAttempts,
  maxTrials: DEFAULTS.maxTrials,
} as const;

/** Options of `mapElites`. */
export interface MapElitesOptions {
  /** α of CMA-MAE, from 0 to 1. Below 1 it needs `thresholdMin`. Default 1: MAP-Elites. */
  readonly learningRate?: number;
  /** What a solution has to exceed in an empty cell. Default: nothing. */
  readonly thresholdMin?: number;
  /** Populations of their own. Trial k belongs to island k mod `islands`. Default 1. */
  readonly islands?: number;
  /** After so many merged trials the best of each island are offered to the next one. Default 50. */
  readonly migrateEvery?: number;
  /** Which share of an island's elites migrates, rounded up, from 0 to 1. Default .1. */
  readonly migrationRate?: number;
  /** Trials of each island that begin without a parent. Default 10. */
  readonly initial?: number;
  /** Further elites of the island that a trial is shown. Default 0. */
  readonly inspirations?: number;
  /** As for trees. Default 8, 3 and no limit. */
  readonly window?: number;
  readonly maxAttempts?: number;
  readonly maxTrials?: number;
}

export interface PopulationConfig {
  readonly learningRate: number;
  readonly thresholdMin: number | null;
  readonly islands: number;
  readonly migrateEvery: number;
  readonly migrationRate: number;
  readonly initial: number;
  readonly inspirations: number;
  readonly window: number;
  readonly maxAttempts: number;
  readonly maxTrials: number;
}

const KNOWN = new Set([...Object.keys(POPULATION_DEFAULTS), "thresholdMin"]);
const LARGEST = Number.MAX_SAFE_INTEGER;

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveMapElites(options: MapElitesOptions): PopulationConfig {
  checkKeys(options, KNOWN, "");
  const { thresholdMin = null, inspirations = POPULATION_DEFAULTS.inspirations } = options;
  const learningRate = real("learningRate", options.learningRate, POPULATION_DEFAULTS.learningRate, { from: 0, to: 1 });
  if (thresholdMin !== null && !Number.isFinite(thresholdMin))
    throw invalidArgument("thresholdMin", thresholdMin, "a finite number");
  if (learningRate < 1 && thresholdMin === null)
    throw invalidArgument("thresholdMin", undefined, "given where learningRate is below 1: thresholds start from it");
  if (!Number.isInteger(inspirations) || inspirations < 0 || inspirations > 1_000)
    throw invalidArgument("inspirations", inspirations, "an integer from 0 to 1000");
  const count = (
    field: "islands" | "migrateEvery" | "initial" | "window" | "maxAttempts" | "maxTrials",
    largest: number,
  ): number => integer(field, options[field], POPULATION_DEFAULTS[field], largest);
  return Object.freeze({
    learningRate,
    thresholdMin,
    islands: count("islands", 10_000),
    migrateEvery: count("migrateEvery", LARGEST),
    migrationRate: real("migrationRate", options.migrationRate, POPULATION_DEFAULTS.migrationRate, { from: 0, to: 1 }),
    initial: count("initial", LARGEST),
    inspirations,
    window: count("window", 4_096),
    maxAttempts: count("maxAttempts", 1_000),
    maxTrials: count("maxTrials", LARGEST),
  });
}
