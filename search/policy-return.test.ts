import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  adaptiveBudget,
  chooseAction,
  drawUniform,
  exportTree,
  goExplore,
  type RolloutOutcome,
  type RolloutTrial,
  randomRollouts,
  SearchError,
  summarise,
  type Visit,
} from "./index.js";
import { cellOf, corridor, countCells, isPit, type MazeState, MOVES, move } from "./testing/maze.js";
import { runs } from "./testing/runs.js";
import { IN_ORDER, runSchedule, scheduleOf } from "./testing/schedule.js";

const maze = corridor(4, 10);

/** The first move on a shortest way between two cells, around the pits. */
function towards(from: MazeState, goal: string): string {
  const ways = new Map<string, { readonly place: MazeState; readonly first: string }>();
  ways.set(cellOf(from), { place: from, first: "east" });
  for (const { place, first } of ways.values()) {
    if (cellOf(place) === goal) return first;
    for (const action of MOVES) {
      const next = move(maze, place, action);
      if (isPit(maze, next) || ways.has(cellOf(next))) continue;
      ways.set(cellOf(next), { place: next, first: place === from ? action : first });
    }
  }
  throw new Error(`No way to ${goal}`);
}

/** Every fifth step fails and stays where it is: a list of actions leads nowhere twice. There are no checkpoints. */
function runTrial({ seed, steps, returning }: RolloutTrial): RolloutOutcome {
  const cells = [...(returning?.cells ?? [])];
  let place = maze.start;
  const most = returning === undefined ? steps : steps - returning.maxSteps;
  let explored = 0;
  const visits: Visit[] = [];
  for (let step = 0; step < steps; step += 1) {
    while (cells[0] === cellOf(place)) cells.shift();
    const goal = step < (returning?.maxSteps ?? 0) ? cells[0] : undefined;
    if (goal === undefined) explored += 1;
    if (explored > most) break;
    const action = goal === undefined ? chooseAction({ seed, step, actions: MOVES }) : towards(place, goal);
    if (drawUniform(seed, "slip", step) >= 0.2) place = move(maze, place, action);
    const terminated = isPit(maze, place);
    visits.push({ action, reward: 0, cell: cellOf(place), terminated });
    if (terminated) break;
  }
  return { kind: "value", visits };
}

describe("return by a policy", () => {
  const root = { cell: "0,0" };

  test("slippery corridor without checkpoints, all cells found; random rollouts in as many steps do not", () => {
    const total = countCells(maze);
    const state = goExplore.init({ root, stepsPerTrial: 10, policyReturn: {}, window: 1, maxSteps: 60_000 }, 1);
    while (summarise(state).cells < total) {
      const trial = goExplore.ask(state, 1).trials[0] as RolloutTrial;
      expect(trial.from).toMatchObject({ node: 0, length: 0 });
      goExplore.tell(state, trial.id, trial.attempt, runTrial(trial));
    }
    const control = randomRollouts.init({ root, stepsPerTrial: 100, maxSteps: summarise(state).steps, window: 1 }, 1);
    for (;;) {
      const [trial] = randomRollouts.ask(control, 1).trials;
      if (trial === undefined) break;
      randomRollouts.tell(control, trial.id, 0, runTrial(trial));
    }
    expect(summarise(control).cells).toBeLessThan(total / 2);
  });

  test("a cell two steps away is the goal: the way to it, patience, and what is counted", () => {
    const options = { root, stepsPerTrial: 3, policyReturn: { patience: 1.5 }, window: 1 };
    const step = { action: "east", reward: 0, terminated: false };
    for (let seed = 0; ; seed += 1) {
      const state = goExplore.init(options, seed);
      goExplore.ask(state, 1);
      const visits = [
        { ...step, cell: "1,0" },
        { ...step, cell: "2,0" },
      ];
      goExplore.tell(state, 0, 0, { kind: "value", visits });
      const [trial] = goExplore.ask(state, 1).trials;
      if (trial?.returning?.cells.length !== 2) continue;
      expect(trial).toMatchObject({ from: { node: 0, cell: "0,0" }, steps: 6 });
      expect(trial.returning).toEqual({ cells: ["1,0", "2,0"], maxSteps: 3 });
      // It never arrives: the goal was chosen and not seen.
      goExplore.tell(state, 1, 0, { kind: "value", visits: [{ ...step, cell: "1,0" }] });
      const counts = exportTree(state).cells.map(({ cell, seen, chosen }) => [cell, seen, chosen]);
      expect(counts).toEqual([
        ["0,0", 2, 1],
        ["1,0", 2, 0],
        ["2,0", 1, 1],
      ]);
      return;
    }
  });

  test("any schedule and restarts, same state as in order", () => {
    const property = fc.property(fc.nat().map(scheduleOf), fc.nat(), (schedule, seed) => {
      const options = { root: { cell: "cell 0" }, stepsPerTrial: 4, policyReturn: {}, maxTrials: 40 };
      const script = { seed, cells: 8 };
      const plain = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
      const other = runSchedule(goExplore, goExplore.init(options, seed), script, schedule);
      expect(JSON.stringify(goExplore.serialise(other.state))).toBe(JSON.stringify(goExplore.serialise(plain.state)));
    });
    fc.assert(property, runs(10));
  });

  test("impatience, unknown words, or a search that has another way back, refused", () => {
    expect(() => goExplore.init({ root, policyReturn: { patience: 0.5 } }, 1)).toThrow("policyReturn.patience");
    expect(() => goExplore.init({ root, policyReturn: { factor: 2 } as never }, 1)).toThrow(SearchError);
    expect(() => adaptiveBudget.init({ root, policyReturn: {} } as never, 1)).toThrow("policyReturn");
  });
});
