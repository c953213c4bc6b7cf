/** Times of operations, in microseconds, as the caller sees them. */

import type { LatencySamples, TimedOperation } from "./protocol.js";

/** Of a trial that never began. */
export const NO_SAMPLES: LatencySamples = { forkWarm: [], forkCold: [], park: [], step: [], score: [] };

export class Stopwatch {
  readonly #samples: Record<TimedOperation, number[]> = { forkWarm: [], forkCold: [], park: [], step: [], score: [] };

  get samples(): LatencySamples {
    return this.#samples;
  }

  /** Times `work`; only what succeeds counts. The name may depend on the result. */
  async time<T>(name: TimedOperation | ((result: T) => TimedOperation), work: () => Promise<T>): Promise<T> {
    const begin = performance.now();
    const result = await work();
    const microseconds = (performance.now() - begin) * 1_000;
    this.#samples[typeof name === "function" ? name(result) : name].push(microseconds);
    return result;
  }
}
