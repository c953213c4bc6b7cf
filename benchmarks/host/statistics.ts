/** What a list of samples says, and how sure that is. */

export interface Distribution {
  readonly unit: string;
  readonly n: number;
  readonly min: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
  /** 95 % interval of the median, from order statistics: no distribution is assumed. Of fewer than six samples there is none. */
  readonly p50Interval: readonly [low: number, high: number] | null;
}

export interface Ratio {
  /** Of the two medians. */
  readonly value: number;
  /** From the ends of the medians' 95 % intervals: at least that sure. */
  readonly low: number;
  readonly high: number;
}

/** Standard deviations that hold 95 % of a normal distribution. */
const Z_95 = 1.96;

/** Between the least and the greatest of so many samples lies the median with 96.9 %; of one fewer, with 93.8 %. */
const LEAST_FOR_INTERVAL = 6;

/** `samples` must not be empty. */
export function distribution(samples: readonly number[], unit: string): Distribution {
  const sorted = [...samples].sort((a, b) => a - b);
  const n = sorted.length;
  const at = (rank: number): number => round(sorted[Math.min(n - 1, Math.max(0, rank))] ?? Number.NaN);
  const percentile = (share: number): number => at(Math.ceil(share * n) - 1);
  // The number of samples below the true median is binomial with p = 1/2.
  const spread = (Z_95 * Math.sqrt(n)) / 2;
  return {
    unit,
    n,
    min: at(0),
    p50: percentile(0.5),
    p90: percentile(0.9),
    p99: percentile(0.99),
    max: at(n - 1),
    p50Interval: n < LEAST_FOR_INTERVAL ? null : [at(Math.floor(n / 2 - spread)), at(Math.ceil(n / 2 + spread))],
  };
}

/** How many times the median of `a` the median of `b` goes into. */
export function ratio(a: Distribution, b: Distribution): Ratio | undefined {
  if (a.p50Interval === null || b.p50Interval === null) return undefined;
  return {
    value: round(a.p50 / b.p50),
    low: round(a.p50Interval[0] / b.p50Interval[1]),
    high: round(a.p50Interval[1] / b.p50Interval[0]),
  };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
