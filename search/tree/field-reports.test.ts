import { describe, expect, test, vi } from "vitest";
import {
  abMcts,
  beam,
  exportNodes,
  gumbelMuZero,
  puct,
  SearchError,
  type StepResult,
  type TreeOptions,
  type TreeSearch,
  type TreeTrial,
  uct,
} from "../index.js";
import { IN_ORDER } from "../testing/schedule.js";
import { runTree, runTreeSchedule, type TreeWorld } from "../testing/tree-run.js";

const actions = ["a", "b", "c"];
const searches = [uct, puct, gumbelMuZero] as unknown as readonly TreeSearch<TreeOptions, unknown>[];

/** Every state has the same actions and is worth `value`; nothing ends. */
function endless(value: number, reward = 0): TreeWorld {
  return ({ from, action }) => ({
    kind: "value",
    key: `${from.key ?? ""}${action}`,
    reward,
    value,
    terminated: false,
    actions,
    priors: [0, 0, 0],
  });
}

function codeOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof SearchError) return `${error.code} ${error.field}`;
    throw error;
  }
  return "none";
}

describe.each(searches)("B32, arithmetic: $name", (search) => {
  const root = { actions, priors: [0, 0, 0] };

  test.each([1, 2, 3, 40])(
    "%i simulations of equal worth, numbers are numbers and the first three actions differ",
    (count) => {
      for (const value of [0, 1, 1e308, -1e308]) {
        const state = search.init({ root, window: 1, maxSimulations: count }, 1);
        const asked = runTree(search, state, endless(value));
        const firstOfRoot = asked.filter(({ from }) => from.node === 0).map(({ action }) => action);
        expect(new Set(firstOfRoot).size).toBe(firstOfRoot.length);
        if (search.name === "uct") expect(firstOfRoot).toEqual(actions.slice(0, count));
        for (const node of exportNodes(state)) expect(Number.isFinite(node.value)).toBe(true);
        expect(search.best(state).node).toBeGreaterThan(0);
        expect(search.best(state).length).toBe(1);
      }
    },
  );

  test("no simulation at all, the answer is the root", () => {
    const state = search.init({ root, maxSimulations: 1 }, 1);
    expect(search.best(state).node).toBe(0);
    expect(search.actions(state).every(({ visits, return: value }) => visits === 0 && value === null)).toBe(true);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    "%d as reward or value, refused and nothing changed",
    (bad) => {
      const state = search.init({ root, maxSimulations: 9 }, 1);
      const trial = search.ask(state, 1).trials[0] as TreeTrial;
      const good: StepResult = { kind: "value", reward: 0, value: 0, terminated: false, actions };
      const before = JSON.stringify(search.serialise(state));
      expect(codeOf(() => search.tell(state, trial.id, 0, { ...good, reward: bad }))).toBe("INVALID_OUTCOME reward");
      expect(codeOf(() => search.tell(state, trial.id, 0, { ...good, value: bad }))).toBe("INVALID_OUTCOME value");
      expect(codeOf(() => search.tell(state, trial.id, 0, { ...good, priors: [bad, 1, 1] }))).toBe(
        "INVALID_OUTCOME priors",
      );
      expect(JSON.stringify(search.serialise(state))).toBe(before);
      expect(search.tell(state, trial.id, 0, good).verdict).not.toBe("ignored");
    },
  );
});

test("B32, exploration that is not a finite number, refused", () => {
  for (const exploration of [Number.POSITIVE_INFINITY, Number.NaN, -1])
    expect(codeOf(() => uct.init({ root: { actions }, exploration }, 1))).toBe("INVALID_ARGUMENT exploration");
  const state = uct.init({ root: { actions }, exploration: 0, window: 1, maxTrials: 30 }, 1);
  expect(runTree(uct, state, endless(0.5))).toHaveLength(30);
});

describe("B33, virtual loss", () => {
  const eight = Array.from({ length: 8 }, (_, index) => `${index}`);

  test.each(["count", "virtual-loss"] as const)(
    "%s, 8 equal actions known, the next 8 dispatches go to 8 different ones, for either player",
    (inFlight) => {
      for (const player of [0, 1] as const) {
        const root = { actions: eight, player };
        const state = uct.init({ root, players: 2, range: [0, 1], inFlight, window: 8, virtualLoss: 1 }, 1);
        const step: StepResult = { kind: "value", reward: 0, value: 0.5, terminated: false, actions: eight, player };
        const first = uct.ask(state, 8).trials;
        expect(new Set(first.map(({ action }) => action)).size).toBe(8);
        for (const { id } of first) uct.tell(state, id, 0, step);
        const second = uct.ask(state, 8).trials;
        expect(new Set(second.map(({ from }) => from.node)).size).toBe(8);
      }
    },
  );

  test("one fails, one is cancelled, one never answers: after the drain no count remains and visits add up", () => {
    const state = uct.init({ root: { actions: eight }, window: 8, maxAttempts: 1 }, 1);
    const { trials } = uct.ask(state, 8);
    const failure = { kind: "infrastructure-failure", reason: "host lost" } as const;
    for (const { id } of trials.slice(0, 3)) uct.tell(state, id, 0, failure);
    for (const { id } of trials.slice(3))
      uct.tell(state, id, 0, { kind: "value", reward: 0, value: 1, terminated: false, actions: eight });
    uct.finish(state);
    const nodes = exportNodes(state);
    expect(nodes.every(({ inFlight }) => inFlight === 0)).toBe(true);
    expect(nodes.map(({ visits }) => visits)).toEqual([5, 1, 1, 1, 1, 1]);
  });
});

describe("B34, cycles", () => {
  const places = ["stay", "undo", "touch"];
  const world: TreeWorld = ({ from, action }) => {
    const [above, here] = (from.key ?? "").split("/");
    const key =
      action === "touch"
        ? `${here}/${Number(here) + 1}`
        : action === "undo"
          ? `${Math.max(0, Number(above) - 1)}/${above}`
          : (from.key ?? "");
    return { kind: "value", key, reward: 0, value: 0.1, terminated: false, actions: places };
  };

  test.each(searches.flatMap((search) => [true, false].map((transpositions) => ({ search, transpositions }))))(
    "$search.name: undo and stay lead to states that are known, transpositions $transpositions, 500 simulations end",
    ({ search, transpositions }) => {
      const root = { actions: places, key: "0/0" };
      const state = search.init({ root, transpositions, window: 4, maxSimulations: 500, maxDepth: 50 }, 1);
      const { asked } = runTreeSchedule(search, state, world, { ...IN_ORDER, seed: 2, workers: 4 });
      expect(state.simulations).toBe(500);
      expect(search.status(state).block).toBe("simulations");
      for (const { from } of asked) expect(from.depth).toBeLessThanOrEqual(50);
    },
  );

  test.each(searches)("$name: two levels of which all is known, ends early and says exhausted", (search) => {
    const state = search.init({ root: { actions }, window: 4, maxSimulations: 10_000 }, 1);
    const asked = runTree(search, state, ({ from, action }) => {
      if (from.depth === 1) return { kind: "value", reward: action === "b" ? 1 : 0, terminated: true };
      return { kind: "value", reward: 0, value: 0, terminated: false, actions: ["a", "b"] };
    });
    expect(asked.length).toBe(9);
    expect(search.status(state)).toMatchObject({ block: "exhausted", done: true });
  });
});

describe("B36, whose value is whose", () => {
  test("proposals A, A, B (ends), C, A, told in any order: each child has its own value, repeats are one child", () => {
    const proposals = ["A", "A", "B", "C", "A", ""];
    const worth: Record<string, number> = { A: 0.25, B: 0.5, C: 0.75 };
    const state = uct.init(
      { root: {}, proposals: true, widening: { k: 6, alpha: 0 }, window: 6, maxTrials: 6, maxAttempts: 1 },
      1,
    );
    const { trials } = uct.ask(state, 6);
    expect(trials.map(({ action }) => action)).toEqual([null, null, null, null, null, null]);
    for (const { id } of trials.toReversed()) {
      const action = proposals[id] as string;
      if (action === "") {
        uct.tell(state, id, 0, { kind: "infrastructure-failure", reason: "evaluator timed out" });
      } else if (action === "B") {
        uct.tell(state, id, 0, { kind: "value", action, reward: 0.5, terminated: true });
      } else {
        uct.tell(state, id, 0, { kind: "value", action, reward: 0, value: worth[action] as number, terminated: false });
      }
    }
    uct.finish(state);
    const children = uct.actions(state).map(({ action, visits, return: value }) => [action, visits, value]);
    expect(children).toEqual([
      ["A", 3, 0.25],
      ["B", 1, 0.5],
      ["C", 1, 0.75],
    ]);
  });

  test("mask and priors that leave actions out, what remains keeps its own prior", () => {
    const root = { actions: ["a", "b", "c"], priors: [0.2, 0.5, 0.3], mask: [true, false, true], value: 0 };
    const state = puct.init({ root, window: 1, maxTrials: 1 }, 1);
    expect(puct.actions(state).map(({ action, prior }) => [action, prior])).toEqual([
      ["a", 0.4],
      ["c", 0.6],
    ]);
    expect(puct.ask(state, 1).trials[0]?.action).toBe("c");
  });
});

describe("B38, seeds", () => {
  test("40 trials, a new process, 60 more: equal to 100 in one go; draws of trials all differ", () => {
    const world: TreeWorld = (trial) => ({ ...(endless((trial.seed % 1_000) / 1_000)(trial) as StepResult) });
    const options = { root: { actions, priors: [1, 1, 1], value: 0 }, noise: {}, window: 4, maxTrials: 100 };
    const whole = puct.init(options, 9);
    const asked = runTree(puct, whole, world);
    expect(new Set(asked.map(({ seed }) => seed)).size).toBe(100);
    let split = puct.init(options, 9);
    for (let count = 0; count < 100; count += 1) {
      if (count === 40) split = puct.restore(JSON.parse(JSON.stringify(puct.serialise(split))));
      const trial = puct.ask(split, 1).trials[0] as TreeTrial;
      puct.tell(split, trial.id, trial.attempt, world(trial));
    }
    puct.ask(split, 1);
    expect(JSON.stringify(puct.serialise(split))).toBe(JSON.stringify(puct.serialise(whole)));
  });
});

describe("traps found in the field", () => {
  test("rewards up to 100 make exploration silent: here it goes on: equal searches for rewards 0.01, 1 and 100 times as large", () => {
    const asked = [0.01, 1, 100].map((scale) => {
      const state = uct.init({ root: { actions }, window: 1, maxTrials: 60 }, 1);
      const world: TreeWorld = (trial) => endless(0, trial.action === "a" ? scale : 0)(trial);
      return runTree(uct, state, world).map(({ from, action }) => `${from.key}${action}`);
    });
    expect(asked[0]).toEqual(asked[1]);
    expect(asked[2]).toEqual(asked[1]);
  });

  test("WU-UCT's released code multiplies exploration by a moving deviation: here equal returns are explored all the same", () => {
    const state = uct.init({ root: { actions }, window: 4, range: [0, 1], maxSimulations: 60 }, 1);
    runTreeSchedule(uct, state, endless(0.5), { ...IN_ORDER, workers: 4 });
    for (const { visits } of uct.actions(state)) expect(Math.abs(visits - 20)).toBeLessThanOrEqual(1);
  });

  test("a wider beam can be worse, and that is not a bug", () => {
    // Of B's children both are judged better than A's only one, which alone leads to the good goal.
    const tree: Record<string, { readonly value: number; readonly next: readonly string[] }> = {
      A: { value: 10, next: ["A1"] },
      B: { value: 5, next: ["B1", "B2"] },
      A1: { value: 4, next: ["good"] },
      B1: { value: 8, next: ["poor"] },
      B2: { value: 7, next: ["poor"] },
    };
    const world: TreeWorld = ({ action }) => {
      const place = tree[action ?? ""];
      if (place === undefined) return { kind: "value", reward: action === "good" ? 10 : 1, terminated: true };
      return { kind: "value", reward: 0, value: place.value, terminated: false, actions: place.next };
    };
    const [narrow, wide] = [1, 2].map((width) => {
      const state = beam.init({ root: { actions: ["A", "B"] }, width, window: 1 }, 1);
      runTree(beam, state, world);
      return beam.best(state).reward;
    });
    expect([narrow, wide]).toEqual([10, 1]);
  });

  test("resuming by comparing whole configurations repeats everything: here a raised cap goes on from what is known", () => {
    const options = { root: { actions }, window: 3 };
    const whole = uct.init({ ...options, maxTrials: 50 }, 4);
    runTree(uct, whole, endless(0.5));
    const first = uct.init({ ...options, maxTrials: 20 }, 4);
    runTree(uct, first, endless(0.5));
    const saved = uct.serialise(first);
    const second = uct.restore({ ...saved, config: { ...saved.config, maxTrials: 50 } });
    expect(runTree(uct, second, endless(0.5)).map(({ id }) => id)).toEqual(
      Array.from({ length: 30 }, (_, index) => 20 + index),
    );
    expect(exportNodes(second)).toEqual(exportNodes(whole));
  });

  test("order of sets, random ids and the clock make a resumed run differ: nothing here reads a clock or a generator", () => {
    const refuse = (): never => {
      throw new Error("A search must not ask for that");
    };
    const spies = [
      vi.spyOn(Math, "random").mockImplementation(refuse),
      vi.spyOn(Date, "now").mockImplementation(refuse),
      vi.spyOn(performance, "now").mockImplementation(refuse),
      vi.spyOn(crypto, "randomUUID").mockImplementation(refuse),
    ];
    try {
      for (const search of searches) {
        const states = [1, 2].map(() => search.init({ root: { actions, priors: [1, 1, 1] }, maxSimulations: 20 }, 1));
        const texts = states.map((state) => {
          runTree(search, state, endless(0.5));
          return JSON.stringify(search.serialise(search.restore(search.serialise(state))));
        });
        expect(texts[0]).toBe(texts[1]);
      }
    } finally {
      for (const spy of spies) spy.mockRestore();
    }
  });
});

describe("proposals that repeat each other", () => {
  test("seven of eight at once are the same, the one behind them can be chosen and is an answer", () => {
    const state = abMcts.init({ root: {}, window: 8 }, 1);
    for (const { id } of abMcts.ask(state, 8).trials) {
      const action = id < 7 ? "seven times" : "once";
      abMcts.tell(state, id, 0, { kind: "value", action, reward: 0, value: 0.5, terminated: false });
    }
    abMcts.finish(state);
    expect(abMcts.actions(state).map(({ action, visits }) => [action, visits])).toEqual([
      ["seven times", 7],
      ["once", 1],
    ]);
  });
});
