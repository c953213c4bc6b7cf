/** The last durations of an operation, in microseconds. */
export class LatencySamples {
  readonly #samples: Float64Array;
  #count = 0;

  constructor(capacity: number) {
    this.#samples = new Float64Array(capacity);
  }

  add(microseconds: number): void {
    this.#samples[this.#count % this.#samples.length] = microseconds;
    this.#count += 1;
  }

  /** In no particular order. */
  values(): readonly number[] {
    return [...this.#samples.subarray(0, Math.min(this.#count, this.#samples.length))];
  }
}
