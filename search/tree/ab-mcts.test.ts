import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { abMcts, exportNodes, SearchError, type StepResult, type TreeTrial } from "../index.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, scheduleOf } from "../testing/schedule.js";
import { runTree, runTreeSchedule, scriptedWorld, type TreeWorld } from "../testing/tree-run.js";
import { gaussianPosterior } from "./ab-mcts.js";

/** A new idea each time; its score by where it was made and how deep that is. */
function ideas(scoreOf: (trial: TreeTrial) => number): TreeWorld {
  return (trial): StepResult => {
    return { kind: "value", action: `idea ${trial.id}`, reward: 0, value: scoreOf(trial), terminated: false };
  };
}

const options = { root: {}, window: 1, maxTrials: 80 };

function shape(scoreOf: (trial: TreeTrial) => number, own: object): { wide: number; deep: number } {
  const state = abMcts.init({ ...options, ...own }, 3);
  runTree(abMcts, state, ideas(scoreOf));
  const nodes = exportNodes(state);
  return { wide: nodes.filter(({ depth }) => depth === 1).length, deep: Math.max(...nodes.map(({ depth }) => depth)) };
}

describe.each(["gaussian", "beta"] as const)("ab-mcts-a, %s", (distribution) => {
  test("refining makes it better, goes deep; refining makes it worse, goes wide", () => {
    const better = shape(({ from }) => Math.min(1, 0.05 + 0.2 * from.depth), { distribution });
    const worse = shape(({ from }) => (from.depth === 0 ? 0.8 : 0.1), { distribution });
    expect(better.deep).toBeGreaterThanOrEqual(5);
    expect(better.wide).toBeLessThan(10);
    expect(worse.deep).toBeLessThanOrEqual(3);
    expect(worse.wide).toBeGreaterThan(60);
  });

  test("any schedule and restarts, same state as in order", () => {
    const property = fc.property(
      fc.nat().map(scheduleOf),
      fc.nat(),
      fc.integer({ min: 1, max: 6 }),
      (schedule, seed, window) => {
        const world = scriptedWorld({ seed, keys: 5, scale: 1, players: 1, hasPriors: false });
        const initial = () =>
          abMcts.init({ root: {}, range: [-9, 9], distribution, window, maxTrials: 40, maxSimulations: 60 }, seed);
        const plain = runTreeSchedule(abMcts, initial(), world, IN_ORDER);
        const other = runTreeSchedule(abMcts, initial(), world, schedule);
        expect(JSON.stringify(abMcts.serialise(other.state))).toBe(JSON.stringify(abMcts.serialise(plain.state)));
        expect(exportNodes(plain.state).every(({ inFlight }) => inFlight === 0)).toBe(true);
      },
    );
    fc.assert(property, runs(10));
  });
});

test("posterior of scores .2, .4, .9 under the paper's prior, as computed by hand", () => {
  // Sum 1.5, mean .5, scatter .09 + .01 + .16 = .26; shift 1 · 3 · .25 / 4 = .1875; (.1 + .26 + .1875) / 4 = .136875.
  const observed = { count: 3, mean: 0.5, meanSquare: (0.04 + 0.16 + 0.81) / 3 };
  const { location, kappa, nu, variance } = gaussianPosterior({ mean: 0, kappa: 1, nu: 1, variance: 0.1 }, observed);
  expect([kappa, nu]).toEqual([4, 4]);
  expect(location).toBeCloseTo(0.375, 12);
  expect(variance).toBeCloseTo(0.136875, 12);
});

test("six trials at once before anything is known, six proposals from the root", () => {
  const state = abMcts.init({ ...options, window: 6, maxTrials: 6 }, 1);
  const { trials } = abMcts.ask(state, 6);
  expect(trials.map(({ from, action }) => [from.node, action])).toEqual(Array(6).fill([0, null]));
});

test.each<[object, string]>([
  [{ players: 2 }, "players"],
  [{ range: "observed" }, "range"],
  [{ stochastic: true, proposals: false, root: { actions: ["a"] } }, "stochastic"],
  [{ widening: { k: 1, alpha: 1 } }, "widening"],
  [{ prior: { kappa: 0 } }, "prior.kappa"],
  [{ distribution: "poisson" }, "distribution"],
])("%j, refused for %s", (wrong, field) => {
  expect(() => abMcts.init({ root: {}, ...wrong } as never, 1)).toThrow(SearchError);
  expect(() => abMcts.init({ root: {}, ...wrong } as never, 1)).toThrow(field);
});
