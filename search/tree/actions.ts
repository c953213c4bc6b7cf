import { isKey } from "../config.js";
import type { SearchError } from "../errors.js";

/** What a state offers, as it was given. */
export interface Offered {
  readonly actions?: readonly string[];
  readonly priors?: readonly number[];
  readonly mask?: readonly boolean[];
}

export type Refusal = (field: string, given: unknown, wanted: string) => SearchError;

/** The actions that may be taken, or null where none are listed. */
export function checkActions({ actions, mask }: Offered, refuse: Refusal): string[] | null {
  if (actions === undefined) return null;
  if (!Array.isArray(actions) || !actions.every(isKey)) throw refuse("actions", actions, "an array of short strings");
  if (hasRepeat(actions)) throw refuse("actions", "with a repeat", "different strings");
  if (mask === undefined) return [...actions];
  if (!Array.isArray(mask) || mask.length !== actions.length || !mask.every((may) => typeof may === "boolean"))
    throw refuse("mask", mask, "one true or false an action");
  return actions.filter((_, index) => mask[index]);
}

/** Most lists are short, and comparing all pairs of a short list is faster than making a set. */
const FEW = 16;

function hasRepeat(actions: readonly string[]): boolean {
  if (actions.length > FEW) return new Set(actions).size !== actions.length;
  for (let index = 1; index < actions.length; index += 1)
    if (actions.indexOf(actions[index] as string) < index) return true;
  return false;
}

/** Priors of the actions that may be taken, adding up to 1; null where none were given. */
export function checkPriors({ actions, priors, mask }: Offered, refuse: Refusal): number[] | null {
  if (priors === undefined) return null;
  if (!Array.isArray(priors) || priors.length !== actions?.length || !priors.every((p) => Number.isFinite(p) && p >= 0))
    throw refuse("priors", priors, "one finite number of at least 0 an action");
  const kept = (priors as readonly number[]).filter((_, index) => mask?.[index] ?? true);
  const largest = kept.reduce((most, prior) => Math.max(most, prior), 0);
  if (largest === 0) return kept.map(() => 1 / kept.length);
  // Divided by the largest first, so that the sum stays finite.
  const scaled = kept.map((prior) => prior / largest);
  const sum = scaled.reduce((total, prior) => total + prior, 0);
  return scaled.map((prior) => prior / sum);
}
