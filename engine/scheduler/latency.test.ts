import { describe, expect, it } from "vitest";

import { LatencyHistogram } from "./latency.js";

describe("LatencyHistogram", () => {
  it("gives percentiles within 2 % of the exact ones", () => {
    const histogram = new LatencyHistogram();
    for (let value = 1; value <= 1_000; value++) histogram.add(value * 10);
    const { n, p50_us, p99_us } = histogram.summary();
    expect(n).toBe(1_000);
    expect(Math.abs(p50_us - 5_000)).toBeLessThan(100);
    expect(Math.abs(p99_us - 9_900)).toBeLessThan(198);
  });

  it("of nothing is 0 of everything", () => {
    expect(new LatencyHistogram().summary()).toEqual({ n: 0, p50_us: 0, p99_us: 0 });
  });
});
