import { describe, expect, test } from "vitest";
import { drawAction, type PuctOptions, puct, SearchError, type StepResult } from "../index.js";
import { runTree, type TreeWorld } from "../testing/tree-run.js";
import { dirichlet, gumbels } from "./noise.js";
import { visitProbabilities } from "./puct.js";

const eight = Array.from({ length: 8 }, (_, index) => `${index}`);

test("temperature: probabilities are visits^(1 / temperature), by hand; 0 is all on the most visited", () => {
  expect(visitProbabilities([1, 3, 0], 1)).toEqual([0.25, 0.75, 0]);
  // 1, 9 and 16 of 26.
  for (const [index, share] of [1 / 26, 9 / 26, 16 / 26].entries())
    expect(visitProbabilities([1, 3, 4], 0.5)[index]).toBeCloseTo(share, 12);
  expect(visitProbabilities([1, 3, 2], 0)).toEqual([0, 1, 0]);
  expect(visitProbabilities([0, 0], 1)).toEqual([0, 0]);
  // So low that the plain power would overflow.
  expect(visitProbabilities([999, 1_000], 1e-6)).toEqual([0, 1]);
});

test("temperature of a search, in the probabilities of its actions", () => {
  const world: TreeWorld = ({ action }) => ({
    kind: "value",
    reward: action === "0" ? 1 : 0,
    value: 0,
    terminated: false,
    actions: ["0", "1"],
  });
  const [plain, sharp] = [1, 0].map((temperature) => {
    const state = puct.init({ root: { actions: ["0", "1"], value: 0 }, window: 1, maxTrials: 20, temperature }, 1);
    runTree(puct, state, world);
    return puct.actions(state).map(({ visits, probability }) => ({ visits, probability }));
  });
  for (const { visits, probability } of plain ?? []) expect(probability).toBeCloseTo(visits / 20, 12);
  expect(sharp?.map(({ probability }) => probability)).toEqual([1, 0]);
});

test("actions drawn from probabilities, as often as these say; nothing to draw from is refused", () => {
  const counts = [0, 0, 0];
  for (let move = 0; move < 4_000; move += 1) {
    const drawn = drawAction([0.1, 0, 0.9], 7, move);
    counts[drawn] = (counts[drawn] ?? 0) + 1;
  }
  expect(counts[1]).toBe(0);
  // 400 expected, standard deviation 19.
  expect(Math.abs((counts[0] ?? 0) - 400)).toBeLessThan(4 * 19);
  expect(() => drawAction([0, 0], 7, 0)).toThrow(SearchError);
});

test("Dirichlet noise: adds up to 1, mean 1 / n, variance of the distribution; equal for equal names", () => {
  const draws = Array.from({ length: 4_000 }, (_, depth) => dirichlet(0.3, { seed: 1, depth, count: 4 }));
  for (const draw of draws) expect(draw.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 12);
  const first = draws.map(([share]) => share as number);
  const mean = first.reduce((sum, share) => sum + share, 0) / first.length;
  const variance = first.reduce((sum, share) => sum + (share - mean) ** 2, 0) / first.length;
  // (1/4)(3/4) / (4 · .3 + 1) = .0852; the mean of 4,000 has a standard error of .0046.
  expect(Math.abs(mean - 0.25)).toBeLessThan(4 * 0.0046);
  expect(Math.abs(variance - 0.1875 / 2.2)).toBeLessThan(0.008);
  expect(dirichlet(0.3, { seed: 1, depth: 5, count: 4 })).toEqual(draws[5]);
});

test("Gumbel noise: mean is Euler's constant, variance π² / 6", () => {
  const draws = Array.from({ length: 1_000 }, (_, depth) => gumbels({ seed: 1, depth, count: 4 })).flat();
  const mean = draws.reduce((sum, value) => sum + value, 0) / draws.length;
  const variance = draws.reduce((sum, value) => sum + (value - mean) ** 2, 0) / draws.length;
  // Standard error of the mean .02, of the variance about .06.
  expect(Math.abs(mean - 0.5772)).toBeLessThan(4 * 0.0203);
  expect(Math.abs(variance - Math.PI ** 2 / 6)).toBeLessThan(4 * 0.06);
});

describe.each<Partial<PuctOptions>>([{ form: "alphazero", range: [-1, 1] }, { form: "muzero" }])(
  "B33, virtual loss, %j",
  (form) => {
    test.each([0, 1] as const)(
      "8 equal actions known, player %i to move, the next 8 dispatches go to 8 different ones",
      (player) => {
        const shared = { players: 2, inFlight: "virtual-loss", window: 8, ...form } as const;
        const state = puct.init({ root: { actions: eight, player, value: 0 }, ...shared }, 1);
        const step: StepResult = { kind: "value", reward: 0, value: 0.5, terminated: false, actions: eight, player };
        const first = puct.ask(state, 8).trials;
        expect(new Set(first.map(({ action }) => action)).size).toBe(8);
        for (const { id } of first) puct.tell(state, id, 0, step);
        const second = puct.ask(state, 8).trials;
        expect(new Set(second.map(({ from }) => from.node)).size).toBe(8);
      },
    );
  },
);
