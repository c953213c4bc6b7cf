/** Times of operations, in microseconds, as the caller sees them. */

import type { LatencySamples, TimedOperation } from "./protocol.js";

/** Of a trial that never began. */
export const NO_SAMPLES: LatencySamples = { fork: [], park: [], step: [], score: [] };

export class Stopwatch {
  readonly #samples: Record<TimedOperation, number[]> = { fork: [], park: [], step: [], score: [] };

  get samples(): LatencySamples {
    return this.#samples;
  }

  /** Only what succeeds counts. */
  async time<T>(name: TimedOperation, work: () => Promise<T>): Promise<T> {
    const begin = performance.now();
    const result = await work();
    this.#samples[name].push((performance.now() - begin) * 1_000);
    return result;
  }
}
