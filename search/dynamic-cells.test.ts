import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cellScore, drawInteger, SearchError, searchCells } from "./index.js";
import { runs } from "./testing/runs.js";

describe("score of a division into cells, computed by hand", () => {
  test.each<[counts: number[], factor: number, score: number, why: string]>([
    [[2, 2, 2, 2], 0.5, 1, "equal cells, and as many as are wanted"],
    [[1, 1, 1, 1, 1, 1, 1, 1], 0.5, 1 / Math.SQRT2, "twice as many as are wanted: |8 - 4| / 4 + 1 = 2"],
    [[4, 4], 0.5, 1 / Math.sqrt(1.5), "half as many: |2 - 4| / 4 + 1 = 1.5"],
    [[6, 2], 0.25, 0.8112781244591328, "as many as are wanted; entropy in bits .75 log2(4/3) + .25 · 2 = .8112781…"],
    [[8], 0.125, 0, "one cell says nothing"],
  ])("%j with %d: %d (%s)", (counts, factor, score) => {
    expect(cellScore(counts, factor)).toBeCloseTo(score, 12);
  });

  test("any counts, from 0 to 1, and the order does not matter", () => {
    const property = fc.property(
      fc.array(fc.integer({ min: 1, max: 1_000 }), { minLength: 1, maxLength: 40 }),
      (counts) => {
        const score = cellScore(counts);
        expect(score).toBeGreaterThanOrEqual(0);
        expect(score).toBeLessThanOrEqual(1 + 1e-12);
        expect(cellScore(counts.toReversed())).toBeCloseTo(score, 12);
      },
    );
    fc.assert(property, runs(30));
  });
});

describe("search for cells", () => {
  const samples = Array.from({ length: 240 }, (_, index) => ({
    x: index % 60,
    noise: drawInteger(1, 1_000, "noise", index),
  }));
  const search = (seed: number) =>
    searchCells(
      {
        samples,
        candidate: (from, index) => ({
          width: 1 + drawInteger(from, 60, "width", index),
          usesNoise: drawInteger(from, 2, "noise", index) === 1,
        }),
        cellOf: ({ width, usesNoise }, { x, noise }) => `${Math.floor(x / width)}${usesNoise ? `|${noise}` : ""}`,
        iterations: 400,
      },
      seed,
    );

  test("30 cells are wanted of 240 samples: two places a cell, and what is noise is left out", () => {
    expect(search(5)).toMatchObject({ parameters: { width: 2, usesNoise: false }, cells: 30 });
    expect(search(5).score).toBeCloseTo(1, 12);
    expect(search(5)).toEqual(search(5));
  });

  test("arguments that make no sense, refused", () => {
    for (const counts of [[], [0], [1.5], [Number.NaN]]) expect(() => cellScore(counts)).toThrow(SearchError);
    expect(() => cellScore([1, 2], 0)).toThrow("splitFactor");
    const nothing = { samples: [], candidate: () => 0, cellOf: () => "" };
    expect(() => searchCells(nothing, 1)).toThrow("samples");
  });
});
