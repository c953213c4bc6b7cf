import type { Choices, ExpandRule } from "./choices.js";
import type { Widening } from "./config.js";
import type { BackupRule, Recommendation } from "./policy.js";
import { INTEGER, INTEGER_STRIDE, REAL, REAL_STRIDE } from "./rows.js";
import type { TreeState } from "./state.js";
import { Flag, Kind, NONE } from "./tree.js";
import { nextMean, stepReturn } from "./value.js";

/** ⌈k · visits^alpha⌉, at least 1. */
export function allowedChildren({ k, alpha }: Widening, visits: number): number {
  const count = Math.max(1, visits);
  // A square root is the same on every machine; a general power is not promised to be.
  const power = alpha === 0.5 ? Math.sqrt(count) : alpha === 1 ? count : count ** alpha;
  return Math.ceil(k * power);
}

/** Progressive widening (Coulom 2007; Couetoux and others 2011); without it, always. */
export const widen: ExpandRule = ({ tree, config }, node) => {
  const { childCount, visits, inFlight } = tree.columns;
  const children = childCount.get(node);
  if (children >= config.maxWidth) return false;
  if (config.widening === null) return true;
  const through = visits.get(node) + (config.inFlight === "ignore" ? 0 : inFlight.get(node));
  return children < allowedChildren(config.widening, through);
};

/** The mean of all returns that came through the node, its own evaluation included. */
export const averageBackup: BackupRule<unknown> = ({ tree }, node, arrived) => {
  const { integers, reals } = tree.rows;
  const at = node * REAL_STRIDE + REAL.value;
  reals[at] = nextMean(reals[at] as number, arrived, integers[node * INTEGER_STRIDE + INTEGER.visits] as number);
};

/**
 * The best return among the children that were visited, for the player to move; the mean of evaluations while there are none. A
 * chance node has the mean of its outcomes, weighted by their visits.
 */
export const maxBackup: BackupRule<unknown> = (state, node, arrived) => {
  const { tree } = state;
  const { firstChild, nextSibling, visits, value } = tree.columns;
  const sign = tree.sign(node);
  const isChance = tree.has(node, Flag.chance);
  let best = Number.NaN;
  let count = 0;
  for (let child = firstChild.get(node); child !== NONE; child = nextSibling.get(child)) {
    const through = visits.get(child);
    if (tree.kind(child) === Kind.dead || through === 0) continue;
    const q = stepReturn(state, child);
    count += through;
    if (Number.isNaN(best)) best = q;
    else if (isChance) best += (q - best) * (through / count);
    else if (sign * q > sign * best) best = q;
  }
  value.set(node, Number.isNaN(best) ? nextMean(value.get(node), arrived, visits.get(node)) : best);
};

/** Most visits, then greatest return, then listed first ("robust child", Chaslot and others 2008). */
export function mostVisits(_state: TreeState, choices: Choices): Recommendation {
  const probabilities: number[] = [];
  for (let index = 0; index < choices.count; index += 1)
    probabilities.push(choices.totalVisits > 0 ? (choices.visits[index] as number) / choices.totalVisits : 0);
  return { score: (index) => choices.visits[index] as number, probabilities };
}
