import { describe, expect, test } from "vitest";
import {
  type ArchiveState,
  drawUniform,
  exportTree,
  type GoExploreOptions,
  goExplore,
  type PathStep,
  type RolloutTrial,
  randomRollouts,
  summarise,
} from "./index.js";
import { cellOf, corridor, isPit, type MazeState, move } from "./testing/maze.js";
import { MazeRunner, runSearch, type World } from "./testing/run.js";

const world: World = { maze: corridor(5, 12), score: ({ x, y }) => y * 3 + (x % 4) };
const options: GoExploreOptions = { root: { cell: "0,0" }, stepsPerTrial: 8, maxTrials: 500 };

function replay(path: readonly PathStep[]): MazeState {
  return path.reduce((place, { action }) => move(world.maze, place, action), world.maze.start);
}

function expectReplays(state: ArchiveState): void {
  for (const { node, cell, score, length } of exportTree(state).nodes) {
    const path = goExplore.path(state, node);
    const place = replay(path);
    expect([isPit(world.maze, place) ? null : cellOf(place), world.score?.(place, path.length), path.length]).toEqual([
      cell,
      score,
      length,
    ]);
  }
}

describe("B37, Go-Explore's archive", () => {
  test("500 trials on 2 workers, every node replays to its own cell, score and length", () => {
    const state = goExplore.init(options, 5);
    runSearch(goExplore, state, { world, workers: 2 });
    expect(summarise(state).archived).toBeGreaterThan(30);
    expectReplays(state);
  });

  test("caller changes everything that was returned, tree is as before", () => {
    const state = goExplore.init(options, 5);
    const runner = new MazeRunner(world);
    runSearch(goExplore, state, { world, workers: 2, until: (s) => goExplore.status(s).asked >= 60 }, runner);
    const { trials } = goExplore.ask(state, 1);
    const trial = trials[0] as RolloutTrial;
    const outcome = runner.run(state, trial);
    const told = goExplore.tell(state, trial.id, trial.attempt, outcome);
    const before = JSON.stringify(goExplore.serialise(state));
    const paths = exportTree(state).nodes.map(({ node }) => goExplore.path(state, node));
    for (const value of [trials, outcome, told.changes, paths, goExplore.serialise(state), exportTree(state)])
      ruin(value);
    for (const value of [goExplore.best(state), goExplore.forecast(state, 5), goExplore.outstanding(state)])
      ruin(value);
    expect(JSON.stringify(goExplore.serialise(state))).toBe(before);
    expectReplays(state);
  });

  test("two trials improve one cell at once, the better one is kept whole", () => {
    for (const order of [
      [0, 1],
      [1, 0],
    ] as const) {
      const state = goExplore.init({ root: { cell: "R" }, window: 2, stepsPerTrial: 3 }, 1);
      const { trials } = goExplore.ask(state, 2);
      const step = { reward: 0, terminated: false };
      const low = { ...step, action: "low", cell: "X", score: 1, candidate: { checkpoint: "low" } };
      const detour = { ...step, action: "detour", cell: "D" };
      const high = { ...step, action: "high", cell: "X", score: 2, candidate: { checkpoint: "high" } };
      const visits = [[low], [detour, high]];
      const released: string[] = [];
      for (const index of order) {
        const trial = trials[index] as RolloutTrial;
        const told = goExplore.tell(state, trial.id, trial.attempt, { kind: "value", visits: visits[index] ?? [] });
        released.push(...told.changes.released);
      }
      released.push(...goExplore.finish(state).changes.released);
      const best = goExplore.best(state);
      expect(best).toMatchObject({ cell: "X", score: 2, length: 2, trial: 1, checkpoint: "high" });
      expect(goExplore.path(state, best.node).map(({ action }) => action)).toEqual(["detour", "high"]);
      expect(released).toEqual(["low"]);
    }
  });
});

describe("B38, seeds", () => {
  const tree = (state: ArchiveState): string => JSON.stringify(exportTree(state));
  const uninterrupted = goExplore.init({ ...options, maxTrials: 100 }, 9);
  runSearch(goExplore, uninterrupted, { world, workers: 1 });

  test("40 trials, saved, restored, 60 more, as 100 in one go", () => {
    const first = goExplore.init({ ...options, maxTrials: 100 }, 9);
    const runner = new MazeRunner(world);
    runSearch(goExplore, first, { world, workers: 1, until: (s) => goExplore.status(s).asked >= 40 }, runner);
    const second = goExplore.restore(JSON.parse(JSON.stringify(goExplore.serialise(first))));
    runSearch(goExplore, second, { world, workers: 1 }, runner);
    expect(tree(second)).toBe(tree(uninterrupted));
  });

  test.each([1, 2, 8])("%i workers that end in a shuffled order, as one", (workers) => {
    const state = goExplore.init({ ...options, maxTrials: 100 }, 9);
    runSearch(goExplore, state, { world, workers, order: workers });
    expect(tree(state)).toBe(tree(uninterrupted));
  });

  test("another seed, another tree", () => {
    const state = goExplore.init({ ...options, maxTrials: 100 }, 10);
    runSearch(goExplore, state, { world, workers: 1 });
    expect(tree(state)).not.toBe(tree(uninterrupted).replace('"seed":9', '"seed":10'));
  });

  test("trials of one run, first draws all differ; attempts of one trial, draws are the same", () => {
    const state = goExplore.init({ ...options, window: 1_000, maxTrials: 1_000 }, 9);
    const { trials } = goExplore.ask(state, 1_000);
    expect(new Set(trials.map(({ seed }) => drawUniform(seed, "action", 0))).size).toBe(1_000);
    goExplore.tell(state, 3, 0, { kind: "infrastructure-failure", reason: "worker died" });
    expect(goExplore.ask(state, 1).trials).toEqual([{ ...trials[3], attempt: 1 }]);
  });
});

describe("traps found in the field", () => {
  test("rewards 1,000,000 times as large, same choices", () => {
    const [small, large] = [1, 1e6].map((scale) => {
      const scaled: World = { ...world, score: (place, length) => scale * (world.score?.(place, length) ?? 0) };
      const state = goExplore.init(options, 5);
      runSearch(goExplore, state, { world: scaled, workers: 1 });
      return exportTree(state).nodes.map(({ score, ...node }) => ({ ...node, score: score / scale, reward: 0 }));
    });
    expect(large).toEqual(small);
  });

  test("Go-Explore accepts a longer path when its score is greater; with optimiseScore false it is refused", () => {
    const [withScore, withoutScore] = [true, false].map((optimiseScore) => {
      const state = goExplore.init({ root: { cell: "R" }, window: 1, optimiseScore }, 1);
      const visit = { action: "go", reward: 0, cell: "X", terminated: false };
      const visits = [
        { ...visit, score: 1, candidate: { checkpoint: "short" } },
        { ...visit, score: 2, candidate: { checkpoint: "long" } },
      ];
      goExplore.ask(state, 1);
      return goExplore.tell(state, 0, 0, { kind: "value", visits }).changes.released;
    });
    expect(withScore).toEqual(["short"]);
    expect(withoutScore).toEqual(["long"]);
  });

  test("a restored state is not progress by itself: equal steps from the root are what it is compared with", () => {
    const state = goExplore.init({ ...options, maxTrials: 1_000_000, maxSteps: 3_000 }, 5);
    const control = randomRollouts.init({ root: options.root, maxSteps: 3_000 }, 5);
    runSearch(goExplore, state, { world, workers: 4 });
    runSearch(randomRollouts, control, { world, workers: 4 });
    expect([summarise(state).steps, summarise(control).steps]).toEqual([3_000, 3_000]);
    expect(summarise(state).cells).toBeGreaterThan(summarise(control).cells);
  });

  test("infrastructure failure, never counted as seen, chosen or a reward", () => {
    const state = goExplore.init({ root: { cell: "R" }, window: 1, maxAttempts: 1 }, 1);
    const before = exportTree(state);
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, { kind: "infrastructure-failure", reason: "host lost" });
    expect(exportTree(state)).toEqual({ ...before, trials: 1 });
  });
});

/** Overwrites everything that can be reached and is not frozen. */
function ruin(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  for (const key of Object.keys(value)) {
    const child = (value as Record<string, unknown>)[key];
    ruin(child);
    if (typeof child !== "object") Reflect.set(value, key, "ruined");
  }
  if (Array.isArray(value) && !Object.isFrozen(value)) value.length = 0;
}
