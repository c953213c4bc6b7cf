import type { TreeState } from "./state.js";
import { NONE } from "./tree.js";
import { normalise } from "./value.js";

/** The slot of an action that is still to be proposed. */
export const PROPOSE = -1;

/**
 * What can be chosen at one decision, as columns that are used again for the next: `child[i]`, `visits[i]` … belong to the i-th
 * choice, for i below `count`. Choices stand in the order of the action list, proposals behind it in the order of their discovery.
 * Values and returns are those of the player to move.
 */
export class Choices {
  node: number = NONE;
  /** 1 where player 0 is to move, -1 where player 1 is. */
  sign: 1 | -1 = 1;
  count = 0;
  /** How many are not blocked; and of these, how many without visits and without simulations under way. */
  free = 0;
  untried = 0;
  /** The child's row, or -1 where the action has not been tried. */
  child = new Int32Array(0);
  /** Index in the action list; proposals follow behind it; `PROPOSE` for the one that would be new. */
  slot = new Int32Array(0);
  /** Simulations that came through and are merged. */
  visits = new Float64Array(0);
  /** Simulations under way; 0 where the search ignores them. */
  inFlight = new Float64Array(0);
  /** Return of the step; 0 where there are no visits. */
  q = new Float64Array(0);
  /** Uniform where none were given. */
  prior = new Float64Array(0);
  /** 1 where it must not be chosen now: under way, nothing to choose below it, proven, or not to be added yet. */
  blocked = new Uint8Array(0);
  /** Sums over all choices. */
  totalVisits = 0;
  totalInFlight = 0;
  /** What the state was told to be worth, and what the search makes of it. */
  raw = 0;
  value = 0;
  /** Whether something below is under way: what is blocked may be free later. */
  isWaiting = false;
  /** Whether a choice is blocked because it is under way for the first time, or because nothing could be chosen below it. */
  isHeldUp = false;

  /** Index of the choice that scores highest among those not blocked; the first of equals; -1 if all are blocked. */
  best(score: (index: number) => number): number {
    let best = -1;
    let highest = 0;
    for (let index = 0; index < this.count; index += 1) {
      if (this.blocked[index] === 1) continue;
      const value = score(index);
      if (best < 0 || value > highest) {
        best = index;
        highest = value;
      }
    }
    return best;
  }

  /** Makes room for at least `count` choices. */
  reserve(count: number): void {
    if (count <= this.child.length) return;
    const size = Math.max(16, 2 * count);
    this.child = new Int32Array(size);
    this.slot = new Int32Array(size);
    this.visits = new Float64Array(size);
    this.inFlight = new Float64Array(size);
    this.q = new Float64Array(size);
    this.prior = new Float64Array(size);
    this.blocked = new Uint8Array(size);
  }
}

/** Whether one more action may be tried at a node; part of an algorithm. */
export type ExpandRule<Params = unknown> = (state: TreeState<Params>, node: number) => boolean;

/** The lowest and highest return to measure by, for the player to move; null where nothing is known. */
export function returnBounds({ config, tree, range }: TreeState, node: number): readonly [number, number] | null {
  const isFirst = tree.sign(node) > 0;
  if (config.range !== "observed") {
    const [lowest, highest] = config.range;
    return isFirst ? [lowest, highest] : [-highest, -lowest];
  }
  if (range === null) return null;
  return isFirst ? [range.lowest, range.highest] : [-range.highest, -range.lowest];
}

/**
 * Return of a choice in [0, 1] between the bounds. With virtual loss, each simulation under way has already lost: it had a return
 * of 0, the worst for whoever is to move.
 */
export function normalisedReturn(
  { config }: TreeState,
  choices: Choices,
  index: number,
  bounds: readonly [number, number] | null,
): number {
  const visits = choices.visits[index] as number;
  if (visits === 0 || bounds === null) return 0;
  const q = normalise(choices.q[index] as number, bounds[0], bounds[1]);
  if (config.inFlight !== "virtual-loss") return q;
  return (q * visits) / (visits + lost(config.virtualLoss, choices, index));
}

/** Visits of a choice, with those under way. */
export function allVisits({ config }: TreeState, choices: Choices, index: number): number {
  const visits = choices.visits[index] as number;
  if (config.inFlight === "virtual-loss") return visits + lost(config.virtualLoss, choices, index);
  return visits + (choices.inFlight[index] as number);
}

/** Sum of `allVisits`. */
export function totalVisits({ config }: TreeState, choices: Choices): number {
  const weight = config.inFlight === "virtual-loss" ? config.virtualLoss : 1;
  return choices.totalVisits + weight * choices.totalInFlight;
}

function lost(virtualLoss: number, choices: Choices, index: number): number {
  return virtualLoss * (choices.inFlight[index] as number);
}
