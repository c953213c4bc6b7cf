import { INTEGER, INTEGER_STRIDE, REAL, REAL_STRIDE } from "./rows.js";
import type { TreeState } from "./state.js";
import { Flag, Kind } from "./tree.js";

/** Within the doubles that are finite: returns near ±1.8e308 do not become infinite. */
export function finite(value: number): number {
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));
}

/** The mean of `count` values, when the mean of all but the last was `mean`. Never overflows. */
export function nextMean(mean: number, value: number, count: number): number {
  const difference = value - mean;
  if (Number.isFinite(difference)) return mean + difference / count;
  return mean * ((count - 1) / count) + value / count;
}

/** What a state is worth for player 0: exact where it is closed, and never worse for the mover than what is proven. */
export function stateValue({ tree, config }: TreeState, node: number): number {
  const value = tree.rows.reals[node * REAL_STRIDE + REAL.value] as number;
  if (!config.solver || !tree.has(node, Flag.bounded)) return value;
  const bound = tree.columns.bound.get(node);
  if (tree.has(node, Flag.closed)) return bound;
  return tree.sign(node) > 0 ? Math.max(value, bound) : Math.min(value, bound);
}

/** What the step to a child returns for player 0: its reward, and the discounted value of where it leads. */
export function stepReturn(state: TreeState, child: number): number {
  const { tree, config } = state;
  const { integers, reals } = tree.rows;
  const at = child * REAL_STRIDE;
  const isChance = ((integers[child * INTEGER_STRIDE + INTEGER.flags] as number) & Flag.chance) !== 0;
  if (isChance) return reals[at + REAL.value] as number;
  return finite((reals[at + REAL.reward] as number) + config.discount * stateValue(state, tree.state(child)));
}

/** Where `value` lies between the bounds, 0 and 1 being the bounds; 0 where they are equal. */
export function normalise(value: number, lowest: number, highest: number): number {
  // Halves, so that the difference of two large numbers of different sign stays finite.
  const width = highest / 2 - lowest / 2;
  if (!(width > 0)) return 0;
  return Math.min(1, Math.max(0, (value / 2 - lowest / 2) / width));
}

/** Whether nothing can be learned below a child, or behind it if it is a link. */
export function isClosed({ tree }: TreeState, child: number): boolean {
  if (tree.kind(child) === Kind.dead) return true;
  return tree.has(tree.state(child), Flag.closed);
}
