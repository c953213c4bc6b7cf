import { describe, expect, test } from "vitest";
import { exportNodes, SearchError, type StepResult, type TreeTrial, uct } from "../index.js";
import { runTree, type TreeWorld } from "../testing/tree-run.js";

const actions = ["a", "b"];
const options = { root: { actions, key: "", checkpoint: "root" }, window: 4 };

const world: TreeWorld = ({ from, action, id }): StepResult => {
  const key = `${from.key}${action}`;
  return {
    kind: "value",
    key,
    reward: 1,
    value: key.endsWith("a") ? 0.75 : 0.25,
    terminated: false,
    actions,
    checkpoint: `${id}`,
  };
};

function searched(maxTrials: number) {
  const state = uct.init({ ...options, maxTrials: 1_000, maxSimulations: maxTrials }, 1);
  runTree(uct, state, world);
  return uct.restore({ ...uct.serialise(state), config: { ...state.config, maxSimulations: 1_000 } });
}

describe("moving on while trials are under way", () => {
  test("root moved, trials outside of it are over: told later, ignored, and their checkpoints released", () => {
    const state = searched(30);
    const { trials } = uct.ask(state, 4);
    const child = uct.actions(state)[0]?.node as number;
    const inside = trials.filter(({ from }) => from.key?.startsWith("a"));
    const outside = trials.filter(({ from }) => !from.key?.startsWith("a"));
    expect([inside.length > 0, outside.length > 0]).toEqual([true, true]);
    const { released } = uct.advanceRoot(state, child).changes;
    expect(released).not.toContain("root");
    expect(exportNodes(state).every(({ key }) => key === null || key.startsWith("a"))).toBe(true);
    for (const trial of outside) {
      const told = uct.tell(state, trial.id, trial.attempt, world(trial));
      expect([told.verdict, told.changes.released]).toEqual(["ignored", [`${trial.id}`]]);
    }
    const before = uct.node(state, child);
    for (const trial of inside) uct.tell(state, trial.id, trial.attempt, world(trial));
    uct.finish(state);
    expect(exportNodes(state).every(({ inFlight }) => inFlight === 0)).toBe(true);
    const root = exportNodes(state).find(({ node }) => node === child);
    expect(root?.visits).toBeGreaterThan(0);
    // Sums of rewards and lengths go on from the first root.
    expect([before.reward, before.length, uct.node(state, child).reward]).toEqual([1, 1, 1]);
  });

  test("subtree dropped, a held result from it is given up, and its action can be tried again", () => {
    const state = searched(8);
    const { trials } = uct.ask(state, 4);
    const last = trials.at(-1) as TreeTrial;
    expect(uct.tell(state, last.id, last.attempt, world(last)).verdict).toBe("held");
    const parent = exportNodes(state).find(({ key, kind }) => key === last.from.key && kind === "state");
    const { released } = uct.drop(state, parent?.node as number).changes;
    expect(released).toContain(`${last.id}`);
    expect(uct.status(state).inFlight).toBeLessThan(4);
    for (const trial of trials) expect(() => uct.tell(state, trial.id, trial.attempt, world(trial))).not.toThrow();
    runTree(uct, state, world);
    expect(exportNodes(state).filter(({ key }) => key === last.from.key)).toHaveLength(1);
  });

  test("space of what was dropped, used again before the tree grows", () => {
    const state = searched(60);
    const size = state.tree.size;
    uct.drop(state, uct.actions(state)[0]?.node as number);
    const free = size - state.tree.live;
    expect(free).toBeGreaterThan(5);
    for (let count = 0; count < free; count += 1) {
      const trial = uct.ask(state, 1).trials[0] as TreeTrial;
      uct.tell(state, trial.id, 0, world(trial));
    }
    expect(state.tree.size).toBe(size);
  });

  test("nodes that can not be moved to or dropped, refused", () => {
    const state = searched(5);
    for (const node of [-1, 0.5, 10_000]) expect(() => uct.advanceRoot(state, node)).toThrow(SearchError);
    expect(() => uct.drop(state, 0)).toThrow("below the root");
    const linked = uct.init({ ...options, transpositions: true, maxTrials: 5 }, 1);
    runTree(uct, linked, world);
    expect(() => uct.drop(linked, 1)).toThrow("without transpositions");
  });
});

describe("forecast", () => {
  test("first node is where the next trial starts, weights add up to 1, nothing is changed by looking", () => {
    const state = uct.init({ ...options, window: 1, maxTrials: 60 }, 1);
    for (let count = 0; count < 60; count += 1) {
      const before = JSON.stringify(uct.serialise(state));
      const ahead = uct.forecast(state, 4);
      expect(JSON.stringify(uct.serialise(state))).toBe(before);
      expect(ahead.reduce((sum, { weight }) => sum + weight, 0)).toBeCloseTo(1, 12);
      const trial = uct.ask(state, 1).trials[0] as TreeTrial;
      expect(ahead[0]).toMatchObject({ node: trial.from.node, checkpoint: trial.from.checkpoint });
      uct.tell(state, trial.id, 0, world(trial));
    }
    expect(uct.forecast(state, 4)).toEqual([]);
  });

  test("trials that wait for another attempt come first", () => {
    const state = uct.init({ ...options, maxTrials: 9 }, 1);
    const [trial] = uct.ask(state, 1).trials as [TreeTrial];
    uct.tell(state, trial.id, 0, { kind: "infrastructure-failure", reason: "host lost" });
    expect(uct.forecast(state, 1)).toEqual([{ node: 0, checkpoint: "root", weight: 1 }]);
    expect(uct.ask(state, 1).trials[0]).toMatchObject({ id: trial.id, attempt: 1, seed: trial.seed });
  });
});
