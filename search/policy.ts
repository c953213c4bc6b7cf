import { DEFAULTS } from "./defaults.js";
import { drawInteger, drawUniform } from "./draws.js";
import { invalidArgument } from "./errors.js";

/** What the draw of an action depends on. */
export interface ActionChoice {
  /** The trial's. */
  readonly seed: number;
  /** Index of the step in the trial, from 0. */
  readonly step: number;
  /** Never empty. */
  readonly actions: readonly string[];
  /** What was done in the step before; absent in the first. */
  readonly previous?: string;
  /** Mean length of runs of one action, at least 1. Default 1: every step draws anew. */
  readonly meanRepeat?: number;
}

/**
 * A uniformly random action; with `meanRepeat` the previous one goes on with probability 1 - 1 / meanRepeat while it is
 * offered, which gives runs of geometric length as Go-Explore's repeated random explorer has them.
 */
export function chooseAction({
  seed,
  step,
  actions,
  previous,
  meanRepeat = DEFAULTS.meanRepeat,
}: ActionChoice): string {
  if (!(meanRepeat >= 1 && meanRepeat <= Number.MAX_VALUE))
    throw invalidArgument("meanRepeat", meanRepeat, "a finite number of at least 1");
  if (actions.length === 0) throw invalidArgument("actions", actions, "a list of at least one action");
  const mayRepeat = previous !== undefined && meanRepeat > 1 && actions.includes(previous);
  if (mayRepeat && drawUniform(seed, "repeat", step) >= 1 / meanRepeat) return previous;
  return actions[drawInteger(seed, actions.length, "action", step)] as string;
}
