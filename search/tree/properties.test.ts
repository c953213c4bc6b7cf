import fc from "fast-check";
import { Packr, Unpackr } from "msgpackr";
import { describe, expect, test } from "vitest";
import { exportNodes, gumbelMuZero, puct, type TreeOptions, type TreeSearch, type TreeState, uct } from "../index.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, type Schedule, scheduleOf } from "../testing/schedule.js";
import { runTreeSchedule, scriptedWorld, type TreeScript } from "../testing/tree-run.js";

/** Algorithms with the options that they accept, chosen by one arbitrary each. */
interface Setting {
  readonly search: TreeSearch<never, unknown>;
  readonly options: TreeOptions;
  readonly script: TreeScript;
  readonly seed: number;
}

const root = { actions: ["act 0", "act 1", "act 2"], key: "root" };
const base = fc.record({
  window: fc.integer({ min: 1, max: 9 }),
  maxAttempts: fc.integer({ min: 1, max: 3 }),
  maxNodes: fc.constantFrom(1_000, 12),
  maxDepth: fc.constantFrom(1_000, 3),
  maxWidth: fc.constantFrom(1_000, 2),
  maxTrials: fc.constantFrom(40, 80),
  maxSimulations: fc.constantFrom(30, 90),
  discount: fc.constantFrom(1, 0.9),
  inFlight: fc.constantFrom("count" as const, "ignore" as const, "virtual-loss" as const),
});
const kinds = fc.constantFrom<Partial<TreeOptions>>(
  {},
  { transpositions: true },
  { solver: true },
  { solver: true, transpositions: true },
  { stochastic: true },
  { stochastic: true, outcomeWidening: { k: 1, alpha: 0.5 } },
  { widening: { k: 1, alpha: 0.5 } },
  { proposals: true },
  { proposals: true, solver: true },
);
const script = fc.record({
  seed: fc.nat(),
  keys: fc.integer({ min: 1, max: 6 }),
  scale: fc.constant(1),
  players: fc.constantFrom<1 | 2>(1, 2),
  hasPriors: fc.boolean(),
});
const settings: fc.Arbitrary<Setting> = fc
  .record({
    name: fc.constantFrom("uct", "uct max", "puct", "gumbel"),
    base,
    kind: kinds,
    script,
    hasValue: fc.boolean(),
    seed: fc.nat(),
  })
  .map(({ name, base, kind, script, hasValue, seed }) => {
    const value = hasValue ? { value: 0.5 } : {};
    const shared = { ...base, ...kind, players: script.players, root: { ...root, ...value } };
    return { ...withAlgorithm(name, shared), script, seed };
  });

function withAlgorithm(name: string, shared: TreeOptions): Pick<Setting, "search" | "options"> {
  const search = (name === "puct" ? puct : name === "gumbel" ? gumbelMuZero : uct) as unknown as Setting["search"];
  if (search.name === "uct")
    return { search, options: { ...shared, ...(name === "uct max" ? { backup: "max" } : {}) } };
  const { proposals, widening, ...rest } = shared;
  if (name === "puct") return { search, options: { ...rest, noise: {} } as TreeOptions };
  const { solver, inFlight, ...kept } = rest;
  return { search, options: { ...kept, inFlight: inFlight === "ignore" ? "ignore" : "count" } };
}

function run({ search, options, script, seed }: Setting, schedule: Schedule, watch?: (state: TreeState) => void) {
  return runTreeSchedule(search, search.init(options as never, seed), scriptedWorld(script), schedule, watch);
}

/** Visits of every node that are neither its own evaluation nor those of its children. */
function unexplained(state: TreeState): [node: number, extra: number][] {
  const { solver, widening, stochastic, maxTrials } = state.config;
  const nodes = exportNodes(state);
  const below = new Map<number, number>();
  const rejecting = new Set<number>();
  for (const { parent, visits, kind } of nodes) {
    if (parent === null) continue;
    below.set(parent, (below.get(parent) ?? 0) + visits);
    if (kind === "rejected") rejecting.add(parent);
  }
  return nodes.flatMap(({ node, kind, visits, proven }): [number, number][] => {
    if (kind === "end" || kind === "rejected" || kind === "pending") return [];
    const children = below.get(node) ?? 0;
    const own = node === state.tree.root ? Number(state.config.root.value !== null) : kind === "chance" ? 0 : 1;
    const extra = visits - own - children;
    // Simulations end in a state where nothing can be done, or nothing is left to be learned, or no more may be tried yet.
    const mayEnd =
      children === 0 ||
      (solver && proven) ||
      (widening !== null && rejecting.has(node)) ||
      (stochastic && state.book.asked === maxTrials);
    return extra === 0 || (mayEnd && extra > 0) ? [] : [[node, extra]];
  });
}

function text(search: Setting["search"], state: TreeState): string {
  return JSON.stringify(search.serialise(state));
}

describe("tree searches, properties", () => {
  test("outcomes in any order, repeated, after failures and restarts, same state as in order", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), (setting, schedule) => {
      const plain = run(setting, IN_ORDER);
      const other = run(setting, schedule);
      expect(exportNodes(other.state)).toEqual(exportNodes(plain.state));
      expect(text(setting.search, other.state)).toBe(text(setting.search, plain.state));
    });
    fc.assert(property, runs(30));
  });

  test("state through JSON or MessagePack at any moment, continues as uninterrupted", () => {
    const packr = new Packr({ useRecords: false });
    const copies = [
      (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown,
      (value: unknown) => new Unpackr({ useRecords: false }).unpack(packr.pack(value)) as unknown,
    ];
    const property = fc.property(
      settings,
      fc.nat().map(scheduleOf),
      fc.constantFrom(...copies),
      (setting, schedule, copy) => {
        const plain = run(setting, IN_ORDER);
        const other = run(setting, { ...schedule, restart: 0.5, copy });
        expect(text(setting.search, other.state)).toBe(text(setting.search, plain.state));
      },
    );
    fc.assert(property, runs(12));
  });

  test("search at rest, nothing in flight, and exactly the checkpoints of the tree are left", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), (setting, schedule) => {
      const { state, left } = run(setting, schedule);
      expect(setting.search.status(state)).toMatchObject({ inFlight: 0, waiting: 0, held: 0, done: true });
      expect(exportNodes(state).every(({ inFlight, kind }) => inFlight === 0 && kind !== "pending")).toBe(true);
      expect(state.continuing).toHaveLength(0);
      expect([...state.held].sort()).toEqual([...left].sort());
      expect(exportNodes(state)).toHaveLength(state.tree.live);
      expect(state.tree.live).toBeLessThanOrEqual(state.config.maxNodes);
    });
    fc.assert(property, runs(12));
  });

  test("tree without transpositions and proposals, at every moment visits of a node = 1 + visits of its children", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), (setting, schedule) => {
      fc.pre(setting.options.transpositions !== true && setting.options.proposals !== true);
      const options = { ...setting.options, maxDepth: 1_000, maxNodes: 1_000 };
      run({ ...setting, options }, schedule, (state) => {
        expect(unexplained(state)).toEqual([]);
      });
    });
    fc.assert(property, runs(12));
  });

  test("no reason against it, a trial is given: ended states never keep a search from going on", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), (setting, schedule) => {
      const { maxSimulations, ...options } = setting.options;
      const endless = setting.search.name === "gumbel-muzero" ? { maxSimulations: 5_000 } : {};
      run({ ...setting, options: { ...options, ...endless, maxNodes: 1_000 } }, schedule, (state) => {
        const { block, done } = setting.search.status(state);
        if (done) return;
        const copy = setting.search.restore(setting.search.serialise(state));
        const { trials } = setting.search.ask(copy, 1);
        const isGiven = trials.length === 1 || setting.search.status(copy).block !== null;
        expect([block, isGiven]).toEqual([block, block !== null || isGiven]);
      });
    });
    fc.assert(property, runs(6));
  });

  test("rewards of any finite size, all numbers stay finite", () => {
    const scales = fc.constantFrom(1e-308, 1, 4e307, 8e307);
    const property = fc.property(settings, fc.nat().map(scheduleOf), scales, (setting, schedule, scale) => {
      const { state } = run({ ...setting, script: { ...setting.script, scale } }, schedule);
      for (const { value, reward } of exportNodes(state)) {
        expect(Number.isFinite(value)).toBe(true);
        expect(Number.isFinite(reward)).toBe(true);
      }
      for (const { probability, return: value } of setting.search.actions(state)) {
        expect(Number.isFinite(probability)).toBe(true);
        expect(value === null || Number.isFinite(value)).toBe(true);
      }
      expect(Number.isFinite(setting.search.best(state).score)).toBe(true);
    });
    fc.assert(property, runs(12));
  });

  test("subtree dropped, nothing outside of it changes, and the search goes on in its space", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), fc.nat(), (setting, schedule, pick) => {
      fc.pre(setting.options.transpositions !== true);
      const { search } = setting;
      const { state, left } = run({ ...setting, options: { ...setting.options, maxTrials: 20 } }, schedule);
      const before = exportNodes(state);
      const top = before[1 + (pick % Math.max(1, before.length - 1))];
      fc.pre(top !== undefined);
      const doomed = new Set([top.node]);
      for (const { node, parent } of [...before, ...before])
        if (parent !== null && doomed.has(parent)) doomed.add(node);
      const { released } = search.drop(state, top.node).changes;
      const plain = (nodes: typeof before) => nodes.map((node) => ({ ...node, proven: false }));
      const rest = exportNodes(state);
      const kept = before.filter(({ node }) => rest.some((other) => other.node === node));
      if (!setting.options.solver) expect(plain(rest)).toEqual(plain(kept));
      expect(rest.some(({ node }) => doomed.has(node))).toBe(false);
      expect([...state.held, ...released].sort()).toEqual([...left].sort());
      const size = state.tree.size;
      const continued = search.restore(JSON.parse(text(search, state)));
      expect(continued.tree.size).toBe(size);
    });
    fc.assert(property, runs(12));
  });

  test("root moved to a child, the subtree stays as it is and everything else is gone", () => {
    const property = fc.property(settings, fc.nat().map(scheduleOf), (setting, schedule) => {
      const { search } = setting;
      const { state, left } = run(setting, schedule);
      const best = search.best(state);
      const nodes = exportNodes(state);
      const child = nodes.find(({ node }) => node === best.node);
      fc.pre(child !== undefined && child.kind === "state" && child.node !== state.tree.root);
      const { visits, value } = child;
      const { released } = search.advanceRoot(state, child.node).changes;
      const moved = exportNodes(state);
      expect(moved.find(({ node }) => node === state.tree.root)).toMatchObject({
        visits,
        value,
        parent: null,
        action: null,
      });
      expect(moved).toHaveLength(state.tree.live);
      expect([...state.held, ...released].sort()).toEqual([...left].sort());
      for (const { node } of moved) expect(search.path(state, node).length).toBeLessThanOrEqual(moved.length);
      const again = search.restore(JSON.parse(text(search, state)));
      expect(text(search, again)).toBe(text(search, state));
    });
    fc.assert(property, runs(12));
  });
});
