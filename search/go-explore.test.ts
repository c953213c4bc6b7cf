import { describe, expect, test } from "vitest";
import {
  type ArchiveState,
  exportTree,
  type GoExploreOptions,
  goExplore,
  heldCheckpoints,
  type RolloutOutcome,
  randomRollouts,
  summarise,
  type Visit,
} from "./index.js";
import { corridor, countCells } from "./testing/maze.js";
import { runSearch } from "./testing/run.js";
import { IN_ORDER, runSchedule, scriptedOutcome } from "./testing/schedule.js";

const root = { cell: "R" };
const FAILURE: RolloutOutcome = { kind: "infrastructure-failure", reason: "host lost" };
const REJECTED: RolloutOutcome = { kind: "rejected", reason: "no action fits" };

function visit(cell: string, checkpoint?: string, more: Partial<Visit> = {}): Visit {
  const candidate = checkpoint === undefined ? {} : { candidate: { checkpoint } };
  return { action: `to ${cell}`, reward: 0, cell, terminated: false, ...candidate, ...more };
}

function value(...visits: readonly Visit[]): RolloutOutcome {
  return { kind: "value", visits };
}

function start(options: Partial<GoExploreOptions> = {}, seed = 1): ArchiveState {
  return goExplore.init({ root, stepsPerTrial: 4, ...options }, seed);
}

function cellOf(state: ArchiveState, key: string | null): ReturnType<typeof exportTree>["cells"][number] | undefined {
  return exportTree(state).cells.find(({ cell }) => cell === key);
}

describe("window", () => {
  test("8 asked of a window of 3, 3 given until the oldest is told", () => {
    const state = start({ window: 3 });
    expect(goExplore.ask(state, 8).trials.map(({ id }) => id)).toEqual([0, 1, 2]);
    expect(goExplore.status(state)).toMatchObject({ inFlight: 3, block: "window", done: false });
    expect(goExplore.tell(state, 2, 0, value()).verdict).toBe("held");
    expect(goExplore.ask(state, 8).trials).toEqual([]);
    expect(goExplore.tell(state, 0, 0, value()).verdict).toBe("merged");
    expect(goExplore.ask(state, 8).trials.map(({ id }) => id)).toEqual([3]);
  });

  test("one worker and a window of 3, outcome k is merged when trial k + 2 has been asked", () => {
    const state = start({ window: 3 });
    const merged = [0, 1, 2, 3].map((id) => {
      const { changes } = goExplore.ask(state, 1);
      return [...changes.merged, ...goExplore.tell(state, id, 0, value(visit("A"))).changes.merged];
    });
    expect(merged).toEqual([[], [], [0], [1]]);
    expect(goExplore.finish(state).changes.merged).toEqual([2, 3]);
  });

  test("trials in flight, count as chosen when the next start is weighed, unless told not to", () => {
    const weights = [true, false].map((countInFlight) => {
      const state = start({ countInFlight });
      const before = cellOf(state, "R")?.weight;
      goExplore.ask(state, 3);
      return [before, cellOf(state, "R")?.weight];
    });
    expect(weights).toEqual([
      [0.1 + 1 + 0.1 + 1, 0.1 / 4 + 1 / 4 + 0.1 + 1 / 4],
      [2.2, 2.2],
    ]);
  });
});

describe("failures", () => {
  test("infrastructure failure, the same trial again with the next attempt; then the stale outcome is ignored", () => {
    const state = start();
    const [first] = goExplore.ask(state, 1).trials;
    expect(goExplore.tell(state, 0, 0, FAILURE).verdict).toBe("retry");
    expect(goExplore.status(state)).toMatchObject({ inFlight: 0, waiting: 1 });
    expect(goExplore.tell(state, 0, 0, value(visit("A", "late"))).changes.released).toEqual(["late"]);
    expect(goExplore.ask(state, 1).trials).toEqual([{ ...first, attempt: 1 }]);
    expect(goExplore.tell(state, 0, 0, value(visit("A", "later")))).toMatchObject({ verdict: "ignored" });
    goExplore.tell(state, 0, 1, value(visit("A", "a")));
    goExplore.finish(state);
    expect(heldCheckpoints(state)).toEqual(["a"]);
  });

  test("outcome told twice, its checkpoints are not released the second time", () => {
    const state = start({ window: 1 });
    goExplore.ask(state, 1);
    const outcome = value(visit("A", "a"), visit("A", "refused"));
    expect(goExplore.tell(state, 0, 0, outcome).changes.released).toEqual(["refused"]);
    expect(goExplore.tell(state, 0, 0, outcome)).toMatchObject({ verdict: "ignored", changes: { merged: [] } });
    expect(heldCheckpoints(state)).toEqual(["a"]);
  });

  test("all attempts lost, no trace but the number of the trial", () => {
    const state = start({ maxAttempts: 2, window: 1 });
    for (const attempt of [0, 1]) {
      goExplore.ask(state, 1);
      goExplore.tell(state, 0, attempt, FAILURE);
    }
    expect(cellOf(state, "R")).toMatchObject({ seen: 0, chosen: 0, chosenSinceNew: 0, weight: 2.2 });
    expect(goExplore.status(state)).toMatchObject({ asked: 1, merged: 1, inFlight: 0, waiting: 0, steps: 0 });
  });

  test("nothing but rejections, the search ends at maxTrials", () => {
    const state = start({ maxTrials: 20 });
    for (;;) {
      const { trials } = goExplore.ask(state, 4);
      if (trials.length === 0) break;
      for (const { id, attempt } of trials) goExplore.tell(state, id, attempt, REJECTED);
    }
    expect(goExplore.status(state)).toMatchObject({ merged: 20, done: true, block: "trials" });
    expect(cellOf(state, "R")).toMatchObject({ chosen: 20, chosenSinceNew: 20, seen: 20, actions: 0 });
  });

  test("end of asking, what waits for a retry is lost, what runs is still merged", () => {
    const state = start();
    goExplore.ask(state, 3);
    goExplore.tell(state, 0, 0, FAILURE);
    goExplore.tell(state, 2, 0, value(visit("A", "a")));
    expect(goExplore.finish(state).changes.merged).toEqual([0]);
    expect(goExplore.ask(state, 3).trials).toEqual([]);
    expect(goExplore.status(state)).toMatchObject({ block: "finished", done: false, inFlight: 1 });
    expect(goExplore.tell(state, 1, 0, FAILURE).changes.merged).toEqual([1, 2]);
    expect(goExplore.status(state)).toMatchObject({ done: true });
  });

  test("restart, trials that ran are outstanding in the same form", () => {
    const state = start();
    const { trials } = goExplore.ask(state, 3);
    goExplore.tell(state, 1, 0, value());
    const restored = goExplore.restore(goExplore.serialise(state));
    expect(goExplore.outstanding(restored)).toEqual([trials[0], trials[2]]);
  });
});

describe("checkpoints", () => {
  test("cell is replaced while a trial runs from it, released only when that trial is merged", () => {
    const state = start({ window: 2 }, 3);
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, value(visit("A", "a"), visit("B"), visit("A")));
    goExplore.ask(state, 1);
    goExplore.tell(state, 1, 0, value(visit("R"), visit("R")));
    let trials = goExplore.ask(state, 2).trials;
    while (!trials.some(({ from }) => from.cell === "A")) {
      for (const { id } of trials) goExplore.tell(state, id, 0, REJECTED);
      trials = goExplore.ask(state, 2).trials;
    }
    const fromA = trials.findIndex(({ from }) => from.cell === "A");
    expect(fromA).toBe(1);
    const [other, running] = trials.map(({ id }) => id);
    const better = value(visit("A", "better", { score: 5 }));
    expect(goExplore.tell(state, other as number, 0, better).changes.released).toEqual([]);
    expect(goExplore.finish(state).changes.released).toEqual([]);
    expect(goExplore.tell(state, running as number, 0, value()).changes.released).toEqual(["a"]);
  });

  test("root's cell is replaced, the root's own checkpoint is never released", () => {
    const state = start({ root: { cell: "R", checkpoint: "template" }, window: 1 });
    goExplore.ask(state, 1);
    const { changes } = goExplore.tell(state, 0, 0, value(visit("R", "better", { score: 1 })));
    expect(changes).toMatchObject({ released: [], accepted: [{ node: 1, cell: "R", checkpoint: "better" }] });
    expect(cellOf(state, "R")?.node).toBe(1);
  });

  test("unknown cell without candidate, seen but not kept and never chosen", () => {
    const state = start({ window: 1 });
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, value(visit("A")));
    expect(cellOf(state, "A")).toMatchObject({ node: null, seen: 1, weight: 0 });
    expect(summarise(state)).toMatchObject({ cells: 2, archived: 1 });
  });

  test("ended states, one cell that is never chosen; their checkpoints are refused", () => {
    const state = start({ window: 1 });
    for (const [id, score] of [1, 3, 2].entries()) {
      goExplore.ask(state, 1);
      const told = goExplore.tell(state, id, 0, value(visit("pit", `end ${id}`, { terminated: true, score })));
      expect(told.changes.released).toEqual([`end ${id}`]);
    }
    expect(cellOf(state, null)).toMatchObject({ seen: 3, actions: 3, weight: 0, node: 2 });
    expect(goExplore.best(state)).toMatchObject({ cell: null, score: 3, checkpoint: null });
    expect(summarise(state)).toMatchObject({ cells: 1, archived: 1, bestScore: 3 });
  });
});

describe("landmarks", () => {
  test("things seen of each kind, counted once, in the order of discovery, with the step", () => {
    const state = start({ root: { cell: "R", landmarks: { room: "hall" } }, window: 1 });
    goExplore.ask(state, 1);
    const seen = [{ thing: "lamp", room: "hall" }, { room: "cave" }, {}, { room: "cave", thing: "axe" }];
    goExplore.tell(state, 0, 0, value(...seen.map((landmarks, index) => visit(`${index}`, undefined, { landmarks }))));
    expect(summarise(state).landmarks).toEqual({ room: 2, thing: 2 });
    expect(exportTree(state).landmarks).toEqual([
      { kind: "room", keys: ["hall", "cave"], foundStep: [0, 2] },
      { kind: "thing", keys: ["lamp", "axe"], foundStep: [1, 4] },
    ]);
  });
});

describe("caps", () => {
  test("steps that are left, the last trial is cut to them and nothing is asked after", () => {
    const state = start({ maxSteps: 10, window: 8 });
    expect(goExplore.ask(state, 8).trials.map(({ steps }) => steps)).toEqual([4, 4, 2]);
    expect(goExplore.status(state)).toMatchObject({ block: "steps", done: false });
    goExplore.tell(state, 0, 0, value(visit("A")));
    expect(goExplore.ask(state, 8).trials.map(({ steps }) => steps)).toEqual([3]);
  });

  test("paths of at most 5 steps, trials end there and cells there are not chosen", () => {
    const state = start({ maxLength: 5, window: 1 });
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, value(visit("A"), visit("B"), visit("C"), visit("D", "d")));
    for (let id = 1; ; id += 1) {
      const [trial] = goExplore.ask(state, 1).trials;
      if (trial?.from.cell === "D") {
        expect(trial.steps).toBe(1);
        goExplore.tell(state, id, 0, value(visit("E", "e")));
        break;
      }
      goExplore.tell(state, id, 0, REJECTED);
    }
    expect(cellOf(state, "E")).toMatchObject({ weight: 0 });
  });

  test("nodes at their limit, candidates are refused and nothing more is asked", () => {
    const state = start({ maxNodes: 2, window: 1 });
    goExplore.ask(state, 1);
    const told = goExplore.tell(state, 0, 0, value(visit("A", "a"), visit("B", "b")));
    expect(told.changes.released).toEqual(["b"]);
    expect(goExplore.ask(state, 1).trials).toEqual([]);
    expect(goExplore.status(state)).toMatchObject({ block: "nodes", done: true });
  });

  test("every cell at the greatest length, nothing to choose", () => {
    const state = start({ maxLength: 1, window: 1 });
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, value(visit("R", "r", { score: 1 })));
    expect(goExplore.status(state)).toMatchObject({ block: "nothing-to-choose", done: true });
    expect(goExplore.forecast(state, 3)).toEqual([]);
  });
});

describe("forecast", () => {
  test("nothing more is told, the starts of the next trials exactly, and the state is as before", () => {
    const options = { root: { cell: "cell 0" }, stepsPerTrial: 5, maxTrials: 200, window: 8 };
    const state = goExplore.init(options, 4);
    const script = { seed: 4, cells: 20 };
    for (let turn = 0; turn < 100; turn += 1) {
      const before = JSON.stringify(goExplore.serialise(state));
      const forecast = goExplore.forecast(state, 1);
      expect(JSON.stringify(goExplore.serialise(state))).toBe(before);
      const [trial] = goExplore.ask(state, 1).trials;
      if (trial === undefined) throw new Error("The window is not full");
      expect(forecast).toEqual([{ node: trial.from.node, checkpoint: trial.from.checkpoint, weight: 1 }]);
      goExplore.tell(state, trial.id, trial.attempt, scriptedOutcome(script, trial));
    }
  });

  test("trials that wait for a retry, first; weights add up to 1", () => {
    const { state } = runSchedule(goExplore, start({ maxTrials: 30 }), { seed: 1, cells: 9 }, IN_ORDER);
    const more = goExplore.restore({ ...goExplore.serialise(state), config: { ...state.config, maxTrials: 100 } });
    const { trials } = goExplore.ask(more, 2);
    goExplore.tell(more, trials[1]?.id ?? -1, 0, FAILURE);
    const forecast = goExplore.forecast(more, 6);
    expect(forecast[0]?.node).toBe(trials[1]?.from.node);
    expect(forecast.reduce((sum, { weight }) => sum + weight, 0)).toBeCloseTo(1, 12);
  });
});

describe("random rollouts", () => {
  test("cells are found, every trial still starts from the root", () => {
    const state = randomRollouts.init({ root, stepsPerTrial: 4, window: 1 }, 1);
    for (let id = 0; id < 5; id += 1) {
      const [trial] = randomRollouts.ask(state, 1).trials;
      expect(trial?.from).toMatchObject({ node: 0, cell: "R", length: 0 });
      randomRollouts.tell(state, id, 0, value(visit("A"), visit("R", undefined, { reward: 1 }), visit(`C${id}`)));
    }
    expect(summarise(state)).toMatchObject({ cells: 7, archived: 7, depth: 3, bestScore: 1 });
    const weighed = exportTree(state).cells.filter(({ weight }) => weight > 0);
    expect(weighed).toEqual([]);
    expect(randomRollouts.forecast(state, 4)).toEqual([{ node: 0, checkpoint: null, weight: 1 }]);
  });
});

describe("sparse corridor", () => {
  const world = { maze: corridor(5, 12) };
  const total = countCells(world.maze);

  test.each([1, 2])("seed %i, all cells in at most a tenth of the steps that random rollouts take", (seed) => {
    const settings = { root: { cell: "0,0" }, stepsPerTrial: 10 };
    const state = goExplore.init({ ...settings, maxSteps: 50_000 }, seed);
    runSearch(goExplore, state, { world, workers: 4, until: (s) => summarise(s).cells === total });
    expect(summarise(state).cells).toBe(total);
    const maxSteps = 10 * summarise(state).steps;
    for (const horizon of [10, 100]) {
      const control = randomRollouts.init({ root: settings.root, stepsPerTrial: horizon, maxSteps }, seed);
      runSearch(randomRollouts, control, { world, workers: 4 });
      expect(summarise(control).cells).toBeLessThan(total);
    }
  });
});
