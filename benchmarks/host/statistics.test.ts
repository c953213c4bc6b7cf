import { describe, expect, it } from "vitest";

import { distribution, ratio } from "./statistics.js";

const HUNDRED = Array.from({ length: 100 }, (_, index) => 100 - index);

describe("distribution", () => {
  it("of 1 to 100 in any order has their percentiles by nearest rank", () => {
    expect(distribution(HUNDRED, "µs")).toMatchObject({
      unit: "µs",
      n: 100,
      min: 1,
      p50: 50,
      p90: 90,
      p99: 99,
      max: 100,
    });
  });

  it("has the ranks 40 and 60 of 100 as the ends of its median's interval", () => {
    // Binomial(100, 1/2): 50 ± 1.96 · 5, outwards; ranks count from 0.
    expect(distribution(HUNDRED, "µs").p50Interval).toEqual([41, 61]);
  });

  it("of one sample is that sample", () => {
    expect(distribution([7], "µs")).toMatchObject({ n: 1, min: 7, p50: 7, p99: 7, max: 7, p50Interval: null });
  });
});

describe("interval of the median", () => {
  it("needs six samples, of which it is then the whole range", () => {
    expect(distribution([1, 2, 3, 4, 5], "µs").p50Interval).toBeNull();
    expect(distribution([1, 2, 3, 4, 5, 6], "µs").p50Interval).toEqual([1, 6]);
    expect(ratio(distribution([1], "µs"), distribution([1], "µs"))).toBeUndefined();
  });
});

describe("ratio", () => {
  it("is that of the medians, between those of their intervals' far ends", () => {
    const slow = distribution(
      HUNDRED.map((value) => value * 10),
      "µs",
    );
    expect(ratio(slow, distribution(HUNDRED, "µs"))).toEqual({ value: 10, low: 6.72, high: 14.88 });
  });
});
