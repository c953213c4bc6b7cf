/** Which way back to a checkpoint takes the least time, by what the ways have taken. */

import type { RewindHow } from "../api.js";
import { DEFAULTS } from "../defaults.js";

/** Of the ways that are open. */
export class RewindCosts {
  /** Moving averages in microseconds, by checkpoint. */
  readonly #averages = new Map<string, Map<RewindHow, number>>();
  readonly #choices = new Map<string, number>();

  /**
   * The first of the ways that was never taken, so that there is something to compare; then the one with the lowest average.
   * One choice of `remeasureEvery` is another one, in turn: what a way takes changes with what the lives write.
   */
  choose(checkpoint: string, ways: readonly [RewindHow, ...RewindHow[]]): RewindHow {
    const averages = this.#averages.get(checkpoint);
    const unknown = ways.find((way) => averages?.has(way) !== true);
    if (averages === undefined || unknown !== undefined) {
      return unknown ?? ways[0];
    }
    const count = (this.#choices.get(checkpoint) ?? 0) + 1;
    this.#choices.set(checkpoint, count);
    const { remeasureEvery } = DEFAULTS.rewind;
    if (count % remeasureEvery === 0) {
      return ways[(count / remeasureEvery) % ways.length] ?? ways[0];
    }
    const cost = (way: RewindHow): number => averages.get(way) ?? 0;
    return ways.reduce((best, way) => (cost(way) < cost(best) ? way : best));
  }

  note(checkpoint: string, way: RewindHow, microseconds: number): void {
    const averages = this.#averages.get(checkpoint) ?? new Map<RewindHow, number>();
    this.#averages.set(checkpoint, averages);
    const before = averages.get(way) ?? microseconds;
    averages.set(way, before + (microseconds - before) * DEFAULTS.rewind.newestWeight);
  }

  forget(checkpoint: string): void {
    this.#averages.delete(checkpoint);
    this.#choices.delete(checkpoint);
  }
}
