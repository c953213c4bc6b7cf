import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  exportNodes,
  type GumbelOptions,
  gumbelMuZero,
  type PuctOptions,
  puct,
  type StepResult,
  type TreeOptions,
  type TreeSearch,
  type TreeState,
  type TreeTrial,
  type UctOptions,
  uct,
} from "../index.js";
import { runTree, type TreeWorld } from "../testing/tree-run.js";
import { allowedChildren } from "./rules.js";
import { consideredVisits } from "./sequential-halving.js";

interface GoldenTree {
  readonly name: string;
  readonly algorithm: "uct" | "puct";
  readonly options: TreeOptions & { readonly priors?: readonly number[]; readonly scale?: number };
  readonly asked: readonly string[];
  /** What each tell changes. */
  readonly tells: readonly (readonly (readonly [path: string, visits: number, value: number])[])[];
}

function load<Golden>(name: string): Golden {
  return JSON.parse(readFileSync(new URL(`../golden/${name}.json`, import.meta.url), "utf8")) as Golden;
}

function digits(path: string, factors: Readonly<Record<string, number>>, first: number): number {
  return [...path].reduce((sum, action, index) => sum + (index + first) * (factors[action] ?? 0), 0);
}

/** The functions of derive_tree.py. */
function pathWorld(actions: readonly string[], options: GoldenTree["options"]): TreeWorld {
  const { scale = 1, players = 1, priors } = options;
  return ({ from, action }) => {
    const path = `${from.key}${action}`;
    return {
      kind: "value",
      reward: (((37 * digits(path, { l: 1, r: 2, m: 3 }, 1) + 11 * path.length) % 101) / 100) * scale,
      value: (((53 * digits(path, { l: 2, r: 3, m: 5 }, 2) + 7 * path.length) % 97) / 96) * scale,
      terminated: false,
      key: path,
      actions,
      ...(priors === undefined ? {} : { priors }),
      ...(players === 2 ? { player: path.length % 2 === 1 ? 1 : 0 } : {}),
    };
  };
}

function pathOf({ from, action }: TreeTrial): string {
  return `${from.key}${action}`;
}

function withoutOwn({ priors, scale, ...options }: GoldenTree["options"]): TreeOptions {
  const root = { actions: ["l", "r"], key: "", ...(priors === undefined ? {} : { priors }) };
  return { ...options, root };
}

/** By path: visits and value. */
type Known = Map<string, readonly [visits: number, value: number]>;

function expectTree(state: TreeState, wanted: Known): void {
  const nodes = exportNodes(state);
  expect(new Map(nodes.map(({ key, visits }) => [key, visits]))).toEqual(
    new Map([...wanted].map(([path, [visits]]) => [path, visits])),
  );
  for (const { key, value } of nodes) expect(value).toBeCloseTo(wanted.get(key ?? "")?.[1] as number, 12);
}

describe("trees against golden files", () => {
  const { runs } = load<{ readonly runs: readonly GoldenTree[] }>("trees");

  test.each(runs)("$algorithm, $name: every action asked, and the whole tree after every tell", (golden) => {
    const search = (golden.algorithm === "uct" ? uct : puct) as TreeSearch<UctOptions | PuctOptions, unknown>;
    const state = search.init(
      { ...withoutOwn(golden.options), window: 1, maxTrials: golden.asked.length } as TreeOptions,
      1,
    );
    const world = pathWorld(["l", "r"], golden.options);
    const known: Known = new Map();
    for (const [index, changed] of golden.tells.entries()) {
      const [trial] = search.ask(state, 1).trials as [TreeTrial];
      expect(pathOf(trial)).toBe(golden.asked[index]);
      search.tell(state, trial.id, trial.attempt, world(trial));
      for (const [path, visits, value] of changed) known.set(path, [visits, value]);
      expectTree(state, known);
    }
    expect(search.ask(state, 1).trials).toEqual([]);
  });

  test.each(
    load<{
      readonly runs: readonly (GoldenTree & { readonly window: number; readonly visits: Record<string, number> })[];
    }>("parallel").runs,
  )(
    "$options.inFlight, $window under way: order in which actions are given out",
    ({ options, window, asked, visits }) => {
      const root = { actions: ["l", "m", "r"], key: "" };
      const state = uct.init({ ...options, root, window, maxTrials: asked.length }, 1);
      const given: string[] = [];
      const running: TreeTrial[] = [];
      const world = pathWorld(root.actions, options);
      for (;;) {
        const { trials } = uct.ask(state, window);
        running.push(...trials);
        given.push(...trials.map(pathOf));
        // The last one is told first: the order must not matter.
        const trial = running.pop();
        if (trial === undefined) break;
        uct.tell(state, trial.id, trial.attempt, world(trial));
      }
      expect(given).toEqual(asked);
      expect(Object.fromEntries(uct.actions(state).map(({ action, visits }) => [action, visits]))).toEqual(visits);
    },
  );
});

interface GoldenBandits {
  readonly pulls: readonly (readonly number[])[];
  readonly ucb1: readonly GoldenPull[];
  readonly tuned: readonly GoldenPull[];
}

interface GoldenPull {
  readonly arm: number;
  readonly visits: readonly number[];
  readonly means: readonly (number | null)[];
}

describe("bandits against golden files", () => {
  const golden = load<GoldenBandits>("bandits");

  test.each(["ucb1", "tuned"] as const)("%s, each pull, visits and means after every tell", (formula) => {
    const actions = golden.pulls.map((_, arm) => `${arm}`);
    const state = uct.init(
      { root: { actions }, stochastic: true, range: [0, 1], formula, window: 1, maxTrials: golden[formula].length },
      1,
    );
    const pulled = actions.map(() => 0);
    for (const { arm, visits, means } of golden[formula]) {
      const [trial] = uct.ask(state, 1).trials;
      expect(trial?.action).toBe(`${arm}`);
      const reward = golden.pulls[arm]?.[pulled[arm] as number] as number;
      pulled[arm] = (pulled[arm] as number) + 1;
      uct.tell(state, (trial as TreeTrial).id, 0, { kind: "value", reward, terminated: true, key: `${reward}` });
      const statistics = uct.actions(state);
      expect(statistics.map(({ visits }) => visits)).toEqual(visits);
      for (const [index, mean] of means.entries()) {
        if (mean === null) expect(statistics[index]?.return).toBeNull();
        else expect(statistics[index]?.return).toBeCloseTo(mean, 12);
      }
    }
  });
});

interface GoldenGumbel {
  readonly schedules: readonly {
    readonly considered: number;
    readonly budget: number;
    readonly visits: readonly number[];
  }[];
  readonly runs: readonly {
    readonly options: {
      readonly q: readonly number[];
      readonly gumbel: readonly number[];
      readonly priors: readonly number[];
      readonly raw: number;
      readonly considered: number;
      readonly visitInit: number;
      readonly valueScale: number;
    };
    readonly budget: number;
    readonly chosen: readonly number[];
    readonly visits: readonly number[];
    readonly best: number;
    readonly improved: readonly number[];
  }[];
}

describe("gumbel muzero against golden files", () => {
  const golden = load<GoldenGumbel>("gumbel");

  test("sequential halving, visits wanted at every turn", () => {
    for (const { considered, budget, visits } of golden.schedules)
      expect(visits.map((_, turn) => consideredVisits(considered, budget, turn))).toEqual(visits);
  });

  test.each(golden.runs)(
    "bandit of fixed returns, $budget simulations",
    ({ options, budget, chosen, visits, best, improved }) => {
      const { q, gumbel, priors, raw, considered, visitInit, valueScale } = options;
      const actions = q.map((_, index) => `${index}`);
      const own: GumbelOptions = {
        root: { actions, priors, value: raw, key: "" },
        ...{ gumbel, considered, visitInit, valueScale },
        maxSimulations: budget,
        window: 1,
      };
      const state = gumbelMuZero.init(own, 1);
      // Behind each action a chain without end that is worth nothing: returns stay as they are.
      const asked = runTree(gumbelMuZero, state, ({ from, action }) => {
        const key = `${from.key}${action}`;
        const reward = from.key === "" ? (q[Number(action)] as number) : 0;
        return { kind: "value", reward, value: 0, terminated: false, key, actions: ["0"] };
      });
      expect(asked.map((trial) => Number(pathOf(trial)[0]))).toEqual(chosen);
      const statistics = gumbelMuZero.actions(state);
      expect(statistics.map((action) => action.visits)).toEqual(visits);
      for (const [index, share] of improved.entries()) expect(statistics[index]?.probability).toBeCloseTo(share, 12);
      expect(gumbelMuZero.best(state).cell).toBe(`${best}`);
    },
  );
});

interface GoldenWidening {
  readonly cases: readonly { readonly k: number; readonly alpha: number; readonly children: readonly number[] }[];
}

describe.each(load<GoldenWidening>("widening").cases)(
  "widening against golden counts, k $k, alpha $alpha",
  ({ k, alpha, children }) => {
    test("children allowed after 0 to 64 visits", () => {
      expect(children.map((_, visits) => allowedChildren({ k, alpha }, visits))).toEqual(children);
    });

    test.each([false, true])("children of a root that is searched, proposals %s", (proposals) => {
      const actions = Array.from({ length: 100 }, (_, index) => `${index}`);
      const root = proposals ? {} : { actions };
      const limits = { range: [0, 1], window: 1, maxSimulations: 64 } as const;
      const state = uct.init({ root, proposals, widening: { k, alpha }, ...limits }, 1);
      let count = 0;
      for (let visits = 0; visits < 64; visits += 1) {
        const [trial] = uct.ask(state, 1).trials as [TreeTrial];
        const action = trial.action === null ? { action: `idea ${trial.id}` } : {};
        const step: StepResult = { kind: "value", reward: 0, value: 0.5, terminated: false, actions, ...action };
        uct.tell(state, trial.id, 0, proposals ? { ...step, actions: [] } : step);
        // One more at a time, as soon as one more is allowed.
        if (count < (children[visits] as number)) count += 1;
        expect([visits, uct.actions(state).filter(({ visits }) => visits > 0).length]).toEqual([visits, count]);
      }
    });
  },
);
