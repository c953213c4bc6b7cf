import { checkKeys, integer, real } from "../check-options.js";
import { DEFAULTS } from "../defaults.js";
import { invalidArgument } from "../errors.js";

/** Every default of the halving searches, with its source. */
export const HALVING_DEFAULTS = {
  /** Default of Ray Tune's `AsyncHyperBandScheduler`, which implements ASHA (Li and others, arXiv 1810.05934). */
  factor: 4,
  minSteps: 1,
  window: DEFAULTS.window,
  maxAttempts: DEFAULTS.maxAttempts,
} as const;

/** Options of `successiveHalving` and `asha`. */
export interface HalvingOptions {
  /** Rollouts that begin. For `asha`, where it may be left out: at most so many. */
  readonly candidates?: number;
  /** Steps after which a rollout is judged for the first time. Default 1. */
  readonly minSteps?: number;
  /** Steps after which a rollout is not continued. */
  readonly maxSteps: number;
  /** Only one of so many goes on, and with so many times the steps. At least 2. Default 4. */
  readonly factor?: number;
  /** As for trees. Default 8, 3 and no limit. */
  readonly window?: number;
  readonly maxAttempts?: number;
  readonly maxTrials?: number;
}

export interface HalvingConfig {
  readonly candidates: number;
  /** Steps from the root at which each rung judges, rising; the last is `maxSteps`. */
  readonly rungs: readonly number[];
  readonly factor: number;
  readonly window: number;
  readonly maxAttempts: number;
  readonly maxTrials: number;
}

const KNOWN = new Set(["candidates", "minSteps", "maxSteps", "factor", "window", "maxAttempts", "maxTrials"]);
const LARGEST = Number.MAX_SAFE_INTEGER;

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveHalving(options: HalvingOptions, needsCandidates: boolean): HalvingConfig {
  checkKeys(options, KNOWN, "");
  if (needsCandidates && options.candidates === undefined)
    throw invalidArgument("candidates", undefined, "given: all of them begin before any goes on");
  const minSteps = integer("minSteps", options.minSteps, HALVING_DEFAULTS.minSteps, LARGEST);
  const maxSteps = integer("maxSteps", options.maxSteps, Number.NaN, LARGEST);
  if (maxSteps < minSteps) throw invalidArgument("maxSteps", maxSteps, `at least minSteps, ${minSteps}`);
  const factor = real("factor", options.factor, HALVING_DEFAULTS.factor, { from: 2, to: 1_000 });
  return Object.freeze({
    candidates: integer("candidates", options.candidates, LARGEST, LARGEST),
    rungs: Object.freeze(rungsOf(minSteps, maxSteps, factor)),
    factor,
    window: integer("window", options.window, HALVING_DEFAULTS.window, 4_096),
    maxAttempts: integer("maxAttempts", options.maxAttempts, HALVING_DEFAULTS.maxAttempts, 1_000),
    maxTrials: integer("maxTrials", options.maxTrials, LARGEST, LARGEST),
  });
}

/** minSteps · factor^k, rounded down, while below `maxSteps`; then that. */
function rungsOf(minSteps: number, maxSteps: number, factor: number): number[] {
  const rungs: number[] = [];
  for (let steps = minSteps; Math.floor(steps) < maxSteps; steps *= factor) rungs.push(Math.floor(steps));
  rungs.push(maxSteps);
  return rungs;
}
