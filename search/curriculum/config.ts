import { checkKeys, flag, integer, real } from "../check-options.js";
import { isKey } from "../config.js";
import { DEFAULTS } from "../defaults.js";
import { invalidArgument } from "../errors.js";

/** A state of the demonstration, in the order in which they were come through. */
export interface DemonstrationState {
  /** null: the root's own state. */
  readonly checkpoint: string | null;
  /** Steps from the root. */
  readonly step: number;
  /** What the demonstration gained from here to its end. */
  readonly gainLeft: number;
}

/** Options of `backwardCurriculum`. */
export interface BackwardOptions {
  /** At least one state, the earliest first. */
  readonly demonstration: readonly DemonstrationState[];
  /** Steps that the demonstration had in all. */
  readonly steps: number;
  /** Rollouts start from this many states: the one that is being learned and those behind it. Default 160. */
  readonly spread?: number;
  /** Which share of rollouts must do as well as the demonstration for the start to move, above 0 and at most 1. Default .1. */
  readonly moveThreshold?: number;
  /** Rollouts from the newest start that are judged together. Default 20. */
  readonly judged?: number;
  /** How many states the start moves by. Default 1. */
  readonly stride?: number;
  /** Times the steps that the demonstration took from there. Default 1.5. */
  readonly patience?: number;
  /** A greater gain counts as success even if it took longer than the demonstration's. Default true. */
  readonly optimiseScore?: boolean;
  /** As for trees. Default 8, 3 and no limit. */
  readonly window?: number;
  readonly maxAttempts?: number;
  readonly maxTrials?: number;
}

export interface BackwardConfig extends Required<BackwardOptions> {}

/** Every default of the curriculum, with its source. "Code" is the released code of Go-Explore's robustification. */
export const BACKWARD_DEFAULTS = {
  /** Code, `nrstartsteps`. */
  spread: 160,
  /** Code, `move_threshold`. */
  moveThreshold: 0.1,
  /** Ours: the smallest number of rollouts in which a tenth is 2. */
  judged: 20,
  stride: 1,
  /** Ours, no option: the share of trials that test the newest start; with a wide spread it would else be judged too rarely. */
  newest: 0.5,
  /** Ours: a policy that dawdles is cut, one that takes its time is not. */
  patience: 1.5,
  optimiseScore: true,
  window: DEFAULTS.window,
  maxAttempts: DEFAULTS.maxAttempts,
  maxTrials: DEFAULTS.maxTrials,
} as const;

const KNOWN = new Set([
  "demonstration",
  "steps",
  ...Object.keys(BACKWARD_DEFAULTS).filter((name) => name !== "newest"),
]);
const LARGEST = Number.MAX_SAFE_INTEGER;

/** @throws SearchError `INVALID_ARGUMENT` naming the field. */
export function resolveBackward(options: BackwardOptions): BackwardConfig {
  checkKeys(options, KNOWN, "");
  const { demonstration } = options;
  const steps = integer("steps", options.steps, Number.NaN, LARGEST);
  if (!Array.isArray(demonstration) || demonstration.length === 0)
    throw invalidArgument("demonstration", demonstration, "a list of at least one state");
  let before = -1;
  const states = (demonstration as readonly DemonstrationState[]).map((given, index) => {
    const { checkpoint, step, gainLeft } = given;
    const field = `demonstration[${index}]`;
    if (checkpoint !== null && !isKey(checkpoint))
      throw invalidArgument(`${field}.checkpoint`, checkpoint, "a string or null");
    if (!Number.isInteger(step) || step <= before || step >= steps)
      throw invalidArgument(`${field}.step`, step, `an integer above ${before} and below steps, ${steps}`);
    if (!Number.isFinite(gainLeft)) throw invalidArgument(`${field}.gainLeft`, gainLeft, "a finite number");
    before = step;
    return Object.freeze({ checkpoint, step, gainLeft });
  });
  const defaults = BACKWARD_DEFAULTS;
  const count = (
    field: "spread" | "judged" | "stride" | "window" | "maxAttempts" | "maxTrials",
    most: number,
  ): number => integer(field, options[field], defaults[field], most);
  return Object.freeze({
    demonstration: Object.freeze(states),
    steps,
    spread: count("spread", LARGEST),
    moveThreshold: real("moveThreshold", options.moveThreshold, defaults.moveThreshold, {
      from: Number.MIN_VALUE,
      to: 1,
    }),
    judged: count("judged", LARGEST),
    stride: count("stride", LARGEST),
    patience: real("patience", options.patience, defaults.patience, { from: 1, to: 1e6 }),
    optimiseScore: flag("optimiseScore", options.optimiseScore, defaults.optimiseScore),
    window: count("window", 4_096),
    maxAttempts: count("maxAttempts", 1_000),
    maxTrials: count("maxTrials", LARGEST),
  });
}
