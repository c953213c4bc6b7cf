import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { betaVariate, draws } from "./gamma.js";
import {
  type ArchiveSearch,
  type ArchiveState,
  adaptiveBudget,
  armsOf,
  bestOfN,
  exportTree,
  independentRetry,
  type RolloutOutcome,
  type RolloutTrial,
  randomBranch,
  SearchError,
  verifiedBy,
} from "./index.js";
import { corridor } from "./testing/maze.js";
import { runSearch } from "./testing/run.js";
import { runs } from "./testing/runs.js";
import { IN_ORDER, leftAndHeld, runSchedule, scheduleOf } from "./testing/schedule.js";

const root = { cell: "cell 0" };

/** One step a trial: to a cell of its own, with the score that the function gives. */
function play<Options>(
  search: ArchiveSearch<Options>,
  state: ArchiveState,
  scoreOf: (trial: RolloutTrial) => number,
): RolloutTrial[] {
  const asked: RolloutTrial[] = [];
  for (;;) {
    const [trial] = search.ask(state, 1).trials;
    if (trial === undefined) return asked;
    asked.push(trial);
    const visit = { action: "go", cell: `${trial.id}`, reward: 0, terminated: false, score: scoreOf(trial) };
    const outcome: RolloutOutcome = { kind: "value", visits: [{ ...visit, candidate: { checkpoint: `${trial.id}` } }] };
    search.tell(state, trial.id, trial.attempt, outcome);
  }
}

test("best of n, n trials from the root, the best of them is the answer", () => {
  const state = bestOfN.init({ root, n: 9, window: 1 }, 1);
  const asked = play(bestOfN, state, ({ id }) => [3, 1, 4, 1, 5, 9, 2, 6, 5][id] ?? 0);
  expect(asked.map(({ from }) => from.node)).toEqual(Array(9).fill(0));
  expect(bestOfN.best(state)).toMatchObject({ score: 9, trial: 5 });
});

test("independent retry, from the root until the target is reached, and not one trial more", () => {
  const state = independentRetry.init({ root, target: 4, window: 1 }, 1);
  const asked = play(independentRetry, state, ({ id }) => [3, 1, 4, 1, 5][id] ?? 0);
  expect(asked.map(({ from }) => from.node)).toEqual([0, 0, 0]);
  expect(independentRetry.status(state)).toMatchObject({ block: "nothing-to-choose", done: true });
});

test("random branch, 2,000 trials from 5 cells, each is drawn as often as the others", () => {
  const state = randomBranch.init({ root, window: 1, maxTrials: 2_004 }, 1);
  const counts = new Map<string, number>();
  for (;;) {
    const [trial] = randomBranch.ask(state, 1).trials;
    if (trial === undefined) break;
    if (trial.id >= 4) counts.set(trial.from.cell, (counts.get(trial.from.cell) ?? 0) + 1);
    const visit = { action: "go", cell: `${trial.id % 4}`, reward: 0, terminated: false };
    const candidate = trial.id < 4 ? { candidate: { checkpoint: `${trial.id}` } } : {};
    randomBranch.tell(state, trial.id, 0, { kind: "value", visits: [{ ...visit, ...candidate }] });
  }
  expect(counts.size).toBe(5);
  // 400 expected, standard deviation 18.
  for (const count of counts.values()) expect(Math.abs(count - 400)).toBeLessThan(4 * 18);
});

describe("adaptive budget", () => {
  test("only going on improves, going on gets the trials", () => {
    const state = adaptiveBudget.init({ root, window: 1, maxTrials: 200 }, 1);
    play(adaptiveBudget, state, ({ id, from }) => (from.node === 0 ? 0 : id));
    const { retry, goOn } = armsOf(state);
    expect(goOn.trials).toBeGreaterThan(5 * retry.trials);
    expect(retry.trials + goOn.trials).toBe(200);
    expect(goOn.improvements).toBeGreaterThan(100);
  });

  test("only retries improve, retries get the trials", () => {
    const state = adaptiveBudget.init({ root, window: 1, maxTrials: 200 }, 1);
    const asked = play(adaptiveBudget, state, ({ id, from }) => (from.node === 0 ? id : -1));
    const { retry, goOn } = armsOf(state);
    expect(retry.trials).toBeGreaterThan(5 * goOn.trials);
    expect(retry.trials).toBe(asked.filter(({ from }) => from.node === 0).length);
  });

  test("maze whose end is far, found where retries alone do not find it, and the way to it is kept", () => {
    const maze = corridor(5, 12);
    const world = { maze, score: ({ x, y }: { x: number; y: number }) => (y === 4 && x === 11 ? 100 : y) };
    const options = { root: { cell: "0,0" }, stepsPerTrial: 12, target: 100, maxSteps: 20_000 };
    const state = adaptiveBudget.init(options, 3);
    runSearch(adaptiveBudget, state, { world, workers: 2 });
    expect(adaptiveBudget.best(state).score).toBe(100);
    expect(adaptiveBudget.path(state, adaptiveBudget.best(state).node).length).toBeGreaterThan(12);
    const control = independentRetry.init(options, 3);
    runSearch(independentRetry, control, { world, workers: 2 });
    expect(independentRetry.best(control).score).toBeLessThan(100);
  });

  test("solution that a command has verified, the command is kept with its node, and survives saving", () => {
    const state = adaptiveBudget.init({ root, target: 1, window: 1 }, 1);
    const { id } = adaptiveBudget.ask(state, 1).trials[0] as RolloutTrial;
    const visit = { action: "fix", cell: "fixed", reward: 1, terminated: true, verified: "npm test" };
    adaptiveBudget.tell(state, id, 0, { kind: "value", visits: [visit] });
    expect(adaptiveBudget.ask(state, 1).trials).toEqual([]);
    const copy = adaptiveBudget.restore(JSON.parse(JSON.stringify(adaptiveBudget.serialise(state))));
    for (const one of [state, copy]) expect(verifiedBy(one, adaptiveBudget.best(one).node)).toBe("npm test");
    expect(verifiedBy(state, 0)).toBeNull();
  });

  test("beta variates, mean and variance of Beta(2, 6)", () => {
    const values = Array.from({ length: 20_000 }, (_, index) => betaVariate(2, 6, draws(1, "beta", index)));
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
    // a / (a + b) and a b / ((a + b)² (a + b + 1)); the mean of 20,000 has a standard error of .001.
    expect(Math.abs(mean - 2 / 8)).toBeLessThan(0.004);
    expect(Math.abs(variance - 12 / (64 * 9))).toBeLessThan(0.002);
  });
});

const searches = [
  [bestOfN, { n: 30 }],
  [independentRetry, { target: 3, maxTrials: 40 }],
  [randomBranch, { target: 5, maxTrials: 40 }],
  [adaptiveBudget, { target: 5, maxTrials: 40 }],
] as unknown as readonly [ArchiveSearch<object>, object][];

test.each(searches)(
  "$name, any schedule and restarts, same state as in order, exactly the needed checkpoints are left",
  (search, own) => {
    const script = fc.record({ seed: fc.nat(), cells: fc.integer({ min: 1, max: 12 }) });
    const property = fc.property(fc.nat().map(scheduleOf), script, fc.nat(), (schedule, script, seed) => {
      const options = { root, stepsPerTrial: 6, ...own };
      const plain = runSchedule(search, search.init(options, seed), script, IN_ORDER);
      const other = runSchedule(search, search.init(options, seed), script, schedule);
      expect(JSON.stringify(exportTree(other.state))).toBe(JSON.stringify(exportTree(plain.state)));
      const [left, held] = leftAndHeld(other);
      expect(left).toEqual(held);
    });
    fc.assert(property, runs(10));
  },
);

test.each<[ArchiveSearch<object>, object, string]>([
  [bestOfN as never, {}, "n"],
  [bestOfN as never, { n: 2, maxTrials: 3 }, "maxTrials"],
  [independentRetry as never, { target: Number.NaN }, "target"],
  [randomBranch as never, { weights: {} }, "weights"],
  [adaptiveBudget as never, { resetCellOnUpdate: true }, "resetCellOnUpdate"],
])("$name, %j, refused", (search, options, field) => {
  try {
    search.init({ root, ...options }, 1);
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(SearchError);
    expect((error as SearchError).field).toBe(field);
  }
});
