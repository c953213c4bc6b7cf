import { isKey } from "../config.js";
import type { SearchError } from "../errors.js";

/** What a state offers, as it was given. */
export interface Offered {
  readonly actions?: readonly string[];
  readonly priors?: readonly number[];
  readonly mask?: readonly boolean[];
}

export type Refusal = (field: string, given: unknown, wanted: string) => SearchError;

/** The list that was checked last. Kept only to save the work: most states of one environment offer the same actions. */
let lastChecked: readonly string[] = Object.freeze([]);

/** The actions that may be taken, or null where none are listed. */
export function checkActions({ actions, mask }: Offered, refuse: Refusal): readonly string[] | null {
  if (actions === undefined) return null;
  if (!Array.isArray(actions)) throw refuse("actions", actions, "an array of short strings");
  if (!isLastChecked(actions)) {
    if (!actions.every(isKey)) throw refuse("actions", actions, "an array of short strings");
    if (hasRepeat(actions)) throw refuse("actions", "with a repeat", "different strings");
    lastChecked = Object.freeze([...actions]);
  }
  if (mask === undefined) return lastChecked;
  if (!Array.isArray(mask) || mask.length !== actions.length || !mask.every((may) => typeof may === "boolean"))
    throw refuse("mask", mask, "one true or false an action");
  return actions.filter((_, index) => mask[index]);
}

function isLastChecked(actions: readonly unknown[]): boolean {
  if (actions.length !== lastChecked.length) return false;
  for (let index = 0; index < actions.length; index += 1) if (actions[index] !== lastChecked[index]) return false;
  return true;
}

/** Most lists are short, and comparing all pairs of a short list is faster than making a set. */
const FEW = 16;

function hasRepeat(actions: readonly string[]): boolean {
  if (actions.length > FEW) return new Set(actions).size !== actions.length;
  for (let index = 1; index < actions.length; index += 1)
    if (actions.indexOf(actions[index] as string) < index) return true;
  return false;
}

/** Priors of the actions that may be taken, adding up to 1; null where none were given. A new array. */
export function checkPriors({ actions, priors, mask }: Offered, refuse: Refusal): number[] | null {
  if (priors === undefined) return null;
  if (!Array.isArray(priors) || priors.length !== actions?.length)
    throw refuse("priors", priors, "one finite number of at least 0 an action");
  for (let index = 0; index < priors.length; index += 1) {
    const prior: unknown = priors[index];
    if (typeof prior !== "number" || !(prior >= 0 && prior <= Number.MAX_VALUE))
      throw refuse("priors", priors, "one finite number of at least 0 an action");
  }
  return share(mask === undefined ? priors.slice() : priors.filter((_, index) => mask[index]));
}

/** In place. All alike where all are 0. */
function share(priors: number[]): number[] {
  let largest = 0;
  for (let index = 0; index < priors.length; index += 1) largest = Math.max(largest, priors[index] as number);
  let sum = 0;
  for (let index = 0; index < priors.length; index += 1) {
    // Divided by the largest first, so that the sum stays finite.
    const scaled = largest === 0 ? 1 : (priors[index] as number) / largest;
    priors[index] = scaled;
    sum += scaled;
  }
  for (let index = 0; index < priors.length; index += 1) priors[index] = (priors[index] as number) / sum;
  return priors;
}
