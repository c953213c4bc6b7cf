/** How a trial chooses its actions. Plain data, because it travels to worker threads. */

import { chooseAction as chooseRandomly } from "../../search/index.js";

/** Uniform over the environment's actions. */
export interface RandomPolicy {
  readonly kind: "random";
  /** Mean length of runs of one action. Default 1: every step draws anew. */
  readonly meanRepeat?: number;
}

export type PolicySpec = RandomPolicy;

/**
 * Each action is drawn uniformly from `environment.actions`. Draws are named by run seed, trial and step, so that a trial
 * takes the same actions on any worker, in any order and in any attempt.
 */
export function randomPolicy(options: { readonly meanRepeat?: number } = {}): RandomPolicy {
  return Object.freeze({ kind: "random", ...options });
}

export interface PolicyMoment {
  /** The trial's. */
  readonly seed: number;
  /** Index of the step in the trial, from 0. */
  readonly step: number;
  /** Never empty. */
  readonly actions: readonly string[];
  /** Of the step before in this trial. */
  readonly previous: string | undefined;
}

export function chooseAction(policy: PolicySpec, { seed, step, actions, previous }: PolicyMoment): string {
  return chooseRandomly({
    seed,
    step,
    actions,
    ...(previous === undefined ? {} : { previous }),
    ...(policy.meanRepeat === undefined ? {} : { meanRepeat: policy.meanRepeat }),
  });
}
