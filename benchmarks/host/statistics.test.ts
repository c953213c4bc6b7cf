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
    expect(distribution([7], "µs")).toMatchObject({ n: 1, min: 7, p50: 7, p99: 7, max: 7, p50Interval: [7, 7] });
  });
});

describe("ratio", () => {
  it("is that of the medians, between those of their intervals' far ends", () => {
    const slow = distribution(
      HUNDRED.map((value) => value * 10),
      "µs",
    );
    const { value, low, high } = ratio(slow, distribution(HUNDRED, "µs"));
    expect(value).toBe(10);
    expect(low).toBe(6.72);
    expect(high).toBe(14.88);
  });
});
