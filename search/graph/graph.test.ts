import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  aStar,
  beam,
  bestFirst,
  exportNodes,
  iterativeDeepening,
  SearchError,
  type TreeOptions,
  type TreeSearch,
  type TreeState,
  uniformCost,
} from "../index.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, scheduleOf } from "../testing/schedule.js";
import { runTree, runTreeSchedule, scriptedWorld, type TreeWorld } from "../testing/tree-run.js";

interface RoadMap {
  readonly roads: readonly (readonly [from: string, to: string, length: number])[];
  readonly straight: Readonly<Record<string, number>>;
  readonly start: string;
  readonly goal: string;
  readonly shortest: readonly string[];
  readonly length: number;
  readonly fewest: number;
  readonly greedy: readonly string[];
  readonly greedyLength: number;
  readonly distances: Readonly<Record<string, number>>;
}

const map = JSON.parse(readFileSync(new URL("../golden/roads.json", import.meta.url), "utf8")) as RoadMap;

function neighbours(town: string): string[] {
  return map.roads.flatMap(([from, to]) => (from === town ? [to] : to === town ? [from] : [])).sort();
}

function road(one: string, two: string): number {
  const found = map.roads.find(([from, to]) => (from === one && to === two) || (from === two && to === one));
  return found?.[2] ?? Number.NaN;
}

/** Costs are rewards below 0; a town is worth minus the distance as the crow flies. */
function roads(goal: string): TreeWorld {
  return ({ from, action }) => {
    const town = action ?? "";
    const reward = -road(from.key ?? "", town);
    if (town === goal) return { kind: "value", key: town, reward, terminated: true };
    return {
      kind: "value",
      key: town,
      reward,
      value: -(map.straight[town] ?? 0),
      terminated: false,
      actions: neighbours(town),
    };
  };
}

const root = { actions: neighbours(map.start), key: map.start };
type AnyWay = TreeSearch<TreeOptions, unknown>;
const ways = [bestFirst, uniformCost, aStar, iterativeDeepening, beam] as unknown as readonly AnyWay[];

function route(search: AnyWay, state: TreeState): string[] {
  return [map.start, ...search.path(state, search.best(state).node).map(({ action }) => action)];
}

describe("road map with a known shortest way", () => {
  test.each([[uniformCost], [aStar]] as unknown as [AnyWay][])(
    "$name, with and without transpositions, 1 and 6 under way: the shortest way",
    (search) => {
      for (const transpositions of [true, false]) {
        for (const window of [1, 6]) {
          const state = search.init({ root, transpositions, window, maxTrials: 3_000 }, 1);
          runTreeSchedule(search, state, roads(map.goal), { ...IN_ORDER, workers: window });
          expect(route(search, state)).toEqual(map.shortest);
          expect(search.best(state).reward).toBe(-map.length);
          expect(search.status(state).block).toBe("nothing-to-choose");
        }
      }
    },
  );

  test("uniform cost, to every town: the distance that the golden file has", () => {
    for (const [goal, distance] of Object.entries(map.distances)) {
      if (goal === map.start) continue;
      const state = uniformCost.init({ root, transpositions: true, window: 1 }, 1);
      runTree(uniformCost, state, roads(goal));
      expect([goal, -uniformCost.best(state).reward]).toEqual([goal, distance]);
    }
  });

  test("A* takes fewer steps than uniform cost, best-first fewer still, and its way is longer", () => {
    const [greedy, guided, blind] = [bestFirst, aStar, uniformCost].map((search) => {
      const state = search.init({ root, transpositions: true, window: 1 }, 1);
      const asked = runTree(search, state, roads(map.goal));
      return {
        steps: asked.length,
        route: route(search as unknown as AnyWay, state),
        length: -search.best(state).reward,
      };
    });
    expect(guided?.steps).toBeLessThan(blind?.steps as number);
    expect(greedy?.steps).toBeLessThan(guided?.steps as number);
    expect(greedy?.route).toEqual(map.greedy);
    expect(greedy?.length).toBe(map.greedyLength);
  });

  test("iterative deepening, a way with the fewest roads", () => {
    const state = iterativeDeepening.init({ root, transpositions: true, window: 1 }, 1);
    runTree(iterativeDeepening, state, roads(map.goal));
    expect(route(iterativeDeepening as unknown as AnyWay, state)).toHaveLength(map.fewest + 1);
  });

  test("beam, never more than its width is taken on at a depth, and a wide one finds the shortest way", () => {
    for (const width of [1, 2, 50]) {
      const state = beam.init({ root, width, maxDepth: 6, score: "gain-and-value", window: 4 }, 1);
      const { asked } = runTreeSchedule(beam, state, roads(map.goal), { ...IN_ORDER, workers: 4 });
      const taken = new Map<number, Set<number>>();
      for (const { from } of asked) taken.set(from.depth, (taken.get(from.depth) ?? new Set()).add(from.node));
      for (const nodes of taken.values()) expect(nodes.size).toBeLessThanOrEqual(width);
      if (width === 50) expect(-beam.best(state).reward).toBe(map.length);
    }
  });
});

test("beam with diversity, states of several parents are kept where the best are all of one", () => {
  const world: TreeWorld = ({ from, action }) => {
    const key = `${from.key}${action}`;
    return {
      kind: "value",
      key,
      reward: 0,
      value: (key[0] === "a" ? 10 : 0) - key.length - Number(key.endsWith("c")),
      terminated: false,
      actions: ["a", "b", "c"],
    };
  };
  const kept = (options: object): Set<string> => {
    const state = beam.init(
      { root: { actions: ["a", "b", "c"], key: "" }, width: 3, maxDepth: 3, window: 1, ...options },
      1,
    );
    const asked = runTree(beam, state, world).filter(({ from }) => from.depth === 2);
    return new Set(asked.map(({ from }) => from.key?.[0] ?? ""));
  };
  expect(kept({})).toEqual(new Set(["a"]));
  expect(kept({ diversity: 20 }).size).toBe(3);
  expect(kept({ maxPerParent: 2 })).toEqual(new Set(["a", "b"]));
});

describe.each(ways)("$name, properties", (search) => {
  const options = fc.record({
    window: fc.integer({ min: 1, max: 6 }),
    maxTrials: fc.constantFrom(30, 80),
    maxDepth: fc.constantFrom(3, 100),
    maxNodes: fc.constantFrom(10, 1_000),
    transpositions: fc.boolean(),
    proposals: fc.boolean(),
  });

  test("any schedule and restarts, same state as in order, nothing under way at rest", () => {
    const property = fc.property(
      options,
      fc.nat().map(scheduleOf),
      fc.nat(),
      fc.integer({ min: 1, max: 5 }),
      (options, schedule, seed, keys) => {
        const script = { seed, keys, scale: 1, players: 1 as const, hasPriors: seed % 2 === 0 };
        const initial = () => search.init({ root: { actions: ["act 0", "act 1"], key: "root" }, ...options }, seed);
        const plain = runTreeSchedule(search, initial(), scriptedWorld(script), IN_ORDER);
        const other = runTreeSchedule(search, initial(), scriptedWorld(script), schedule);
        expect(exportNodes(other.state)).toEqual(exportNodes(plain.state));
        expect(JSON.stringify(search.serialise(other.state))).toBe(JSON.stringify(search.serialise(plain.state)));
        expect(exportNodes(plain.state).every(({ inFlight }) => inFlight === 0)).toBe(true);
        expect([...other.state.held].sort()).toEqual([...other.left].sort());
      },
    );
    fc.assert(property, runs(8));
  });

  test("two players, chance, discount, widening or proofs, refused", () => {
    for (const wrong of [
      { players: 2 },
      { stochastic: true },
      { discount: 0.9 },
      { widening: { k: 1, alpha: 1 } },
      { solver: true },
    ])
      expect(() => search.init({ root, ...wrong } as never, 1)).toThrow(SearchError);
  });
});
