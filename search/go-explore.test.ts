import { expect, test } from "vitest";
import { exportTree, goExplore, heldCheckpoints, randomRollouts, summarise } from "./index.js";
import { corridor, countCells } from "./testing/maze.js";
import { runSearch } from "./testing/run.js";

const world = { maze: corridor(60, 12) };
const root = { cell: "0,0" };

test("go-explore, any number of workers and any order of completion, same tree byte for byte", () => {
  const trees = [1, 2, 8].map((workers) => {
    const state = goExplore.init({ root, stepsPerTrial: 8, maxSteps: 2_000 }, 7);
    runSearch(goExplore, state, { world, workers, order: workers });
    return JSON.stringify(exportTree(state));
  });
  expect(trees[1]).toBe(trees[0]);
  expect(trees[2]).toBe(trees[0]);
});

test("go-explore, at rest, holds exactly the checkpoints that were not released", () => {
  const state = goExplore.init({ root, stepsPerTrial: 8, maxSteps: 2_000 }, 7);
  const runner = runSearch(goExplore, state, { world, workers: 4 });
  expect([...runner.checkpoints.keys()].sort()).toEqual(heldCheckpoints(state).sort());
  expect(goExplore.status(state)).toMatchObject({ inFlight: 0, waiting: 0, held: 0, steps: 2_000, done: true });
});

test("go-explore, sparse corridor, reaches all cells in a tenth of the steps of random rollouts", () => {
  const total = countCells(world.maze);
  const state = goExplore.init({ root, stepsPerTrial: 10, maxSteps: 200_000 }, 3);
  runSearch(goExplore, state, { world, workers: 4, until: (s) => summarise(s).cells === total });
  expect(summarise(state).cells).toBe(total);
  const control = randomRollouts.init({ root, stepsPerTrial: 100, maxSteps: 10 * summarise(state).steps }, 3);
  runSearch(randomRollouts, control, { world, workers: 4 });
  console.log(summarise(state), summarise(control));
  expect(summarise(control).cells).toBeLessThan(total);
});
