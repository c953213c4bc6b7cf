/** Percentiles of many durations in little memory: buckets that are at most 1.6 % wide. */

import type { LatencySamples, TimedOperation } from "../workers/protocol.js";

export interface LatencySummary {
  readonly n: number;
  /** Microseconds; 0 where n is 0. */
  readonly p50_us: number;
  readonly p99_us: number;
}

/** Buckets per power of two. */
const RESOLUTION = 64;

export class LatencyHistogram {
  readonly #buckets = new Map<number, number>();
  #count = 0;

  add(microseconds: number): void {
    const bucket = Math.round(Math.log2(Math.max(1, microseconds)) * RESOLUTION);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + 1);
    this.#count++;
  }

  summary(): LatencySummary {
    return { n: this.#count, p50_us: this.#percentile(0.5), p99_us: this.#percentile(0.99) };
  }

  #percentile(share: number): number {
    let left = Math.ceil(this.#count * share);
    for (const [bucket, count] of [...this.#buckets].sort(([a], [b]) => a - b)) {
      left -= count;
      if (left <= 0) return Math.round(2 ** (bucket / RESOLUTION));
    }
    return 0;
  }
}

export class LatencyBook {
  readonly #histograms = new Map<TimedOperation, LatencyHistogram>();

  add(samples: LatencySamples): void {
    for (const [name, values] of Object.entries(samples) as [TimedOperation, readonly number[]][]) {
      const histogram = this.#histograms.get(name) ?? new LatencyHistogram();
      this.#histograms.set(name, histogram);
      for (const value of values) histogram.add(value);
    }
  }

  summary(name: TimedOperation): LatencySummary {
    return (this.#histograms.get(name) ?? new LatencyHistogram()).summary();
  }
}
