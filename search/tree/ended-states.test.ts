import { describe, expect, test } from "vitest";
import {
  aStar,
  beam,
  bestFirst,
  exportNodes,
  gumbelMuZero,
  iterativeDeepening,
  puct,
  type TreeOptions,
  type TreeSearch,
  type TreeTrial,
  uct,
  uniformCost,
} from "../index.js";
import { IN_ORDER } from "../testing/schedule.js";
import { runTree, runTreeSchedule, type TreeWorld } from "../testing/tree-run.js";

const actions = ["good end", "poor", "other"];
const searches = [uct, puct] as unknown as readonly TreeSearch<TreeOptions, unknown>[];

/** One action ends with the best return at once, the others go on for ever and are worth little. */
const world: TreeWorld = ({ from, action }) => {
  if (action === "good end" && from.depth === 0) return { kind: "value", reward: 1, terminated: true };
  return { kind: "value", reward: 0, value: 0.2, terminated: false, actions };
};

describe.each(searches)("$name", (search) => {
  const options: TreeOptions = { root: { actions, value: 0.5 }, range: [0, 1], window: 4 };

  test("an end is known and its sibling under way, the end is not visited to fill the time", () => {
    const state = search.init(options, 1);
    const first = search.ask(state, 1).trials[0] as TreeTrial;
    expect(first.action).toBe("good end");
    search.tell(state, first.id, 0, world(first));
    const { trials } = search.ask(state, 4);
    expect(trials.map(({ action }) => action)).toEqual(["poor", "other"]);
    for (const { action, visits } of search.actions(state))
      expect([action, visits]).toEqual([action, action === "good end" ? 1 : 0]);
    expect(search.ask(state, 4).trials).toEqual([]);
    expect(exportNodes(state).map(({ visits }) => visits)).toEqual([2, 1, 0, 0]);
  });

  test("an end is much better than all else, every ask gives a trial all the same, after 1,000 free simulations at most", () => {
    const state = search.init({ ...options, window: 1, maxTrials: 60 }, 1);
    let simulations = 0;
    for (let id = 0; id < 60; id += 1) {
      const [trial] = search.ask(state, 1).trials as [TreeTrial];
      expect(trial.id).toBe(id);
      expect(state.simulations - simulations).toBeLessThanOrEqual(1_000);
      search.tell(state, trial.id, 0, world(trial));
      simulations = state.simulations;
    }
    expect(search.ask(state, 1).trials).toEqual([]);
    expect(search.status(state)).toMatchObject({ block: "trials", done: true });
    expect(search.path(state, search.best(state).node)[0]?.action).toBe("good end");
  });

  test("free simulations count as of where the search stands, not by how often it is asked", () => {
    const [often, seldom] = [1, 7].map((times) => {
      const state = search.init({ ...options, window: 3, maxTrials: 40 }, 1);
      runTreeSchedule(search, state, world, { ...IN_ORDER, workers: 3 }, (at) => {
        for (let time = 1; time < times; time += 1) search.ask(at, 0);
      });
      return JSON.stringify(search.serialise(state));
    });
    expect(often).toBe(seldom);
  });
});

test("everything that can be reached is known but for a circle, the search is over and says so", () => {
  const circle: TreeWorld = () => ({
    kind: "value",
    key: "here",
    reward: 0.1,
    value: 0,
    terminated: false,
    actions: ["stay"],
  });
  const state = uct.init({ root: { actions: ["go"], key: "root" }, transpositions: true, window: 1 }, 1);
  expect(runTree(uct, state, circle)).toHaveLength(2);
  expect(uct.status(state)).toMatchObject({ block: "nothing-to-choose", done: true });
});

describe.each([
  uct,
  puct,
  gumbelMuZero,
  bestFirst,
  uniformCost,
  aStar,
  iterativeDeepening,
  beam,
] as unknown as readonly TreeSearch<TreeOptions, unknown>[])("$name, few actions", (search) => {
  test("none at the root, nothing is asked, and the root is the answer", () => {
    const state = search.init({ root: { actions: [] }, maxSimulations: 20 }, 1);
    expect(search.ask(state, 4).trials).toEqual([]);
    expect(search.status(state)).toMatchObject({ block: "exhausted", done: true });
    expect([search.best(state).node, search.actions(state)]).toEqual([0, []]);
  });

  test("one at the root and one behind it, which ends: two trials, and the way is known", () => {
    const two: TreeWorld = ({ from }) =>
      from.depth === 0
        ? { kind: "value", reward: 0, value: 0.5, terminated: false, actions: ["on"] }
        : { kind: "value", reward: 1, terminated: true };
    const state = search.init({ root: { actions: ["on"] }, window: 4, maxSimulations: 20 }, 1);
    expect(runTree(search, state, two)).toHaveLength(2);
    expect(search.status(state)).toMatchObject({ block: "exhausted", done: true });
    expect(search.path(state, search.best(state).node)[0]?.action).toBe("on");
  });

  test("all at the root rejected, over, and the root is the answer", () => {
    const state = search.init({ root: { actions: ["a", "b"] }, window: 4, maxSimulations: 20 }, 1);
    expect(runTree(search, state, () => ({ kind: "rejected", reason: "no" }))).toHaveLength(2);
    expect(search.status(state).done).toBe(true);
    expect(search.best(state).node).toBe(0);
  });
});
