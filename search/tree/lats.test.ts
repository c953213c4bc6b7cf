import fc from "fast-check";
import { expect, test } from "vitest";
import { exportNodes, lats, SearchError, type StepResult, type TreeTrial } from "../index.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, scheduleOf } from "../testing/schedule.js";
import { runTree, runTreeSchedule, scriptedWorld, type TreeWorld } from "../testing/tree-run.js";

/** Attempts of three steps: only those that go on from a good start succeed, the others end with a reflection. */
const attempts: TreeWorld = ({ id, from }): StepResult => {
  const action = `idea ${id}`;
  if (from.depth < 2)
    return {
      kind: "value",
      action,
      reward: 0,
      value: id === 2 || from.key === "good" ? 0.8 : 0.2,
      terminated: false,
      key: id === 2 || from.key === "good" ? "good" : "bad",
    };
  return { kind: "value", action, reward: from.key === "good" ? 1 : 0, terminated: true, note: `reflection ${id}` };
};

function searched(own: object): TreeTrial[] {
  return runTree(
    lats,
    lats.init({ root: {}, children: 4, window: 1, range: [0, 1], maxTrials: 40, ...own }, 1),
    attempts,
  );
}

test("trap, three rules for unvisited children: the one here is that a state has all its proposals before one is gone on with, and never more", () => {
  const asked = searched({});
  const counts = new Map<number, number>();
  for (const { from } of asked) {
    counts.set(from.node, (counts.get(from.node) ?? 0) + 1);
    if (from.node !== 0) expect(counts.get(0)).toBe(4);
  }
  expect(Math.max(...counts.values())).toBe(4);
});

test("the child that is judged better has most of the trials, and is the answer", () => {
  const state = lats.init({ root: {}, children: 4, window: 1, range: [0, 1], maxTrials: 20 }, 1);
  const asked = runTree(lats, state, attempts);
  const good = asked.filter(({ from }) => from.key === "good").length;
  expect(good).toBeGreaterThan(asked.filter(({ from }) => from.key === "bad").length);
  expect(lats.best(state).cell).toBe("good");
});

test("notes of ended attempts, the latest three, are handed to later trials; notes of other states are not", () => {
  const asked = searched({});
  const ends = asked.filter(({ from }) => from.depth === 2).map(({ id }) => id);
  for (const { id, notes } of asked) {
    const known = ends.filter((end) => end < id).map((end) => `reflection ${end}`);
    expect(notes).toEqual(known.slice(-3));
  }
  expect(searched({ maxNotes: 0 }).every(({ notes }) => notes.length === 0)).toBe(true);
});

test("any schedule and restarts, same state as in order, notes included", () => {
  const property = fc.property(
    fc.nat().map(scheduleOf),
    fc.nat(),
    fc.integer({ min: 1, max: 6 }),
    (schedule, seed, window) => {
      const world = scriptedWorld({ seed, keys: 5, scale: 1, players: 1, hasPriors: false });
      const initial = () => lats.init({ root: {}, window, maxTrials: 40, maxSimulations: 60 }, seed);
      const plain = runTreeSchedule(lats, initial(), world, IN_ORDER);
      const other = runTreeSchedule(lats, initial(), world, schedule);
      expect(JSON.stringify(lats.serialise(other.state))).toBe(JSON.stringify(lats.serialise(plain.state)));
      expect(other.asked.map(({ notes }) => notes)).toEqual(plain.asked.map(({ notes }) => notes));
      expect(exportNodes(plain.state).every(({ inFlight }) => inFlight === 0)).toBe(true);
    },
  );
  fc.assert(property, runs(10));
});

test.each<[object, string]>([
  [{ players: 2 }, "players"],
  [{ stochastic: true, proposals: false, root: { actions: ["a"] } }, "stochastic"],
  [{ widening: { k: 1, alpha: 1 } }, "widening"],
  [{ children: 0 }, "children"],
  [{ maxNotes: -1 }, "maxNotes"],
])("%j, refused for %s", (wrong, field) => {
  expect(() => lats.init({ root: {}, ...wrong } as never, 1)).toThrow(SearchError);
  expect(() => lats.init({ root: {}, ...wrong } as never, 1)).toThrow(field);
});
