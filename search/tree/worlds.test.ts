import { describe, expect, test } from "vitest";
import { aStar, exportNodes, type TreeSearch, type UctOptions, uct, uniformCost } from "../index.js";
import { minimax, mover, pGame, pGameActions, pGameValue, squares, ticTacToe } from "../testing/games.js";
import {
  CLIFF,
  cellValues,
  type GridWorld,
  gridRoot,
  gridSteps,
  LAKE_4,
  LAKE_8,
  randomPlayout,
  randomValues,
} from "../testing/grid-worlds.js";
import { IN_ORDER } from "../testing/schedule.js";
import { runTree, runTreeSchedule } from "../testing/tree-run.js";

describe("tic-tac-toe", () => {
  test("all 5,478 positions, the solver proves what minimax says", () => {
    const values = minimax();
    expect(values.size).toBe(5_478);
    const marks = ([board]: readonly [string, number]): number => [...board].filter((mark) => mark !== ".").length;
    // What the solver says of each position: proven values, and what ended boards were told to return.
    const proven = new Map<string, number>();
    for (const [board] of [...values].sort((one, two) => marks(one) - marks(two))) {
      const actions = squares(board);
      // Of ended boards there is nothing to prove; others may have been proven on the way from an earlier one.
      if (actions.length === 0 || proven.has(board)) continue;
      const root = { actions, key: board, player: mover(board) };
      const state = uct.init({ root, players: 2, solver: true, transpositions: true, range: [-1, 1], window: 1 }, 1);
      runTree(uct, state, ticTacToe);
      expect(uct.status(state).block).toBe("exhausted");
      const best = uct.node(state, uct.best(state).node);
      expect([board, values.get(best.cell ?? "")]).toEqual([board, values.get(board)]);
      for (const { key, kind, proven: isProven, value, reward } of exportNodes(state)) {
        if (kind === "state" && isProven && key !== null) proven.set(key, value);
        if (kind === "end" && key !== null) proven.set(key, reward);
      }
    }
    // Where a win is proven the rest is left alone: some boards that have ended are never reached.
    const known = [...values].filter(([board]) => proven.has(board) || squares(board).length > 0);
    expect(known.length).toBeGreaterThan(5_400);
    expect(known.filter(([board, value]) => proven.get(board) !== value)).toEqual([]);
  });

  test("position with a win in one, proven after few steps and without a look at the rest", () => {
    const board = "xx.oo....";
    const root = { actions: squares(board), key: board, player: mover(board) };
    const state = uct.init({ root, players: 2, solver: true, range: [-1, 1], window: 1 }, 1);
    expect(runTree(uct, state, ticTacToe)).toHaveLength(1);
    expect(uct.actions(state)[0]).toMatchObject({ action: "2", return: 1, proven: true });
  });
});

/** Error of the root's value against value iteration, after 1,000 simulations with the exact values at the leaves. */
function lakeError(world: GridWorld, options: Partial<UctOptions>, seed = 3): number {
  const discount = 0.95;
  const values = cellValues(world, discount);
  const plain: UctOptions = {
    root: gridRoot(0),
    stochastic: true,
    discount,
    range: [0, 1],
    exploration: 0.3,
    window: 1,
  };
  const state = uct.init({ ...plain, backup: "max", maxSimulations: 1_000, ...options }, seed);
  const schedule = { ...IN_ORDER, workers: options.window ?? 1 };
  runTreeSchedule(
    uct,
    state,
    gridSteps(world, (cell) => values[cell] as number),
    schedule,
  );
  return Math.abs(uct.node(state, 0).score - (values[0] as number));
}

describe("frozen lake, 4x4, exact transition table, value of the start .1805", () => {
  test("value iteration, the values that are known of it", () => {
    // Gymnasium's FrozenLake-v1, discount 1 in the limit: the best policy arrives in 14 of 17 attempts.
    expect(cellValues(LAKE_4, 1 - 1e-9)[0]).toBeCloseTo(14 / 17, 6);
  });

  test.each<[string, Partial<UctOptions>, number]>([
    ["max backup, every simulation samples anew", {}, 0.01],
    ["average backup, which counts its own exploration", { backup: "average" }, 0.06],
    ["double progressive widening", { widening: { k: 1, alpha: 0.5 }, outcomeWidening: { k: 1, alpha: 0.5 } }, 0.03],
    ["16 under way", { window: 16 }, 0.02],
  ])("%s, %j, within %d of value iteration", (_name, options, bound) => {
    expect(lakeError(LAKE_4, options)).toBeLessThan(bound);
  });
});

test("frozen lake, 16 under way: value within 1 % of the sequential search's at equal simulations, better than without counts", () => {
  const seeds = Array.from({ length: 12 }, (_, seed) => seed);
  const mean = (options: Partial<UctOptions>): number =>
    seeds.reduce((sum, seed) => sum + lakeError(LAKE_4, { maxSimulations: 500, ...options }, seed) / seeds.length, 0);
  const counted = mean({ window: 16 });
  expect(counted).toBeLessThan(mean({}) + 0.01 * 0.1805);
  expect(counted).toBeLessThan(mean({ window: 16, inFlight: "ignore" }));
});

test("frozen lake, random playouts, and moves all alike: the mean return is the value of the random policy", () => {
  const discount = 0.95;
  const values = randomValues(LAKE_4, discount);
  const world = gridSteps(LAKE_4, (cell, { seed }) => randomPlayout(LAKE_4, cell, { seed, discount, limit: 100 }));
  for (const cell of [10, 14]) {
    const root = gridRoot(cell);
    const shared = { root, stochastic: true, discount, range: [0, 1], window: 1, maxSimulations: 600 } as const;
    // So much exploration that every move is taken as often as the others.
    const state = uct.init({ ...shared, exploration: 1_000 }, 5);
    runTree(uct, state, world);
    // Returns are between 0 and 1 and deviate by less than .5: four standard errors of their mean are .082.
    expect([cell, Math.abs(uct.node(state, 0).score - (values[cell] as number)) < 0.082]).toEqual([cell, true]);
  }
  expect(values[14]).toBeGreaterThan(0.3);
});

describe("frozen lake, 8x8, exact transition table, value of the start .0483", () => {
  test.each<[Partial<UctOptions>, number]>([
    [{}, 0.006],
    [{ backup: "average" }, 0.007],
  ])("%j, within %d of value iteration", (options, bound) => {
    expect(lakeError(LAKE_8, options)).toBeLessThan(bound);
  });
});

describe("cliff walking, exact transition table, value of the start -13", () => {
  const along = ["up", ...Array<string>(11).fill("right"), "down"];
  const values = cellValues(CLIFF, 1);

  test("max backup with the exact values at the leaves, the value of value iteration itself", () => {
    const root = gridRoot(CLIFF.start);
    const range = [-150, 0] as const;
    const options: UctOptions = { root, range, exploration: 0.05, backup: "max", window: 1, maxSimulations: 2_000 };
    const state = uct.init(options, 3);
    runTree(
      uct,
      state,
      gridSteps(CLIFF, (cell) => values[cell] as number),
    );
    expect(values[CLIFF.start]).toBe(-13);
    expect(uct.node(state, 0).score).toBe(-13);
    expect(uct.node(state, uct.best(state).node).cell).toBe("24");
  });

  test.each([[uniformCost], [aStar]] as unknown as [TreeSearch<UctOptions, unknown>][])(
    "$name without any estimate, the way along the cliff",
    (search) => {
      const state = search.init({ root: gridRoot(CLIFF.start), transpositions: true, window: 1 }, 1);
      runTree(
        search,
        state,
        gridSteps(CLIFF, () => 0),
      );
      const best = search.best(state);
      expect(best.reward).toBe(-13);
      expect(search.path(state, best.node).map(({ action }) => action)).toEqual(along);
    },
  );
});

describe("P-games", () => {
  /** In how many of the games the recommended first move gives the win away. */
  function failures(depth: number, simulations: number, games: number, options: Partial<UctOptions> = {}): number {
    let failed = 0;
    for (let seed = 0; seed < games; seed += 1) {
      const game = { seed, branching: 2, depth };
      const root = { actions: pGameActions(game), key: "" };
      const bounds = { players: 2, range: [0, 1], maxSimulations: simulations } as const;
      const state = uct.init({ root, window: 1, ...bounds, ...options }, 5);
      if (options.window === undefined) runTree(uct, state, pGame(game));
      else runTreeSchedule(uct, state, pGame(game), { ...IN_ORDER, seed: 1, workers: options.window });
      if (pGameValue(game, uct.best(state).cell ?? "") !== pGameValue(game)) failed += 1;
    }
    return failed;
  }

  test("branching B = 2, depth D: B^(D/2) simulations, and four and sixteen times as many, errors fall alike at every D", () => {
    // What a given error takes grows as B^(D/2), like the leaves that alpha-beta looks at: docs/search/uct.md has the whole table.
    const table = [6, 8, 10].map((depth) => [1, 4, 16].map((times) => failures(depth, times * 2 ** (depth / 2), 30)));
    for (const [few, some, many] of table as [number, number, number][]) {
      expect(few).toBeLessThanOrEqual(4);
      expect(some).toBeLessThanOrEqual(2);
      expect(many).toBe(0);
    }
    const total = (column: number): number => table.reduce((sum, row) => sum + (row[column] as number), 0);
    expect(total(0)).toBeGreaterThan(total(1));
  });

  test("16 under way, a few per cent worse than one at a time, and better than without counts", () => {
    const counted = failures(10, 64, 60, { window: 16 });
    expect(counted).toBeLessThanOrEqual(failures(10, 64, 60) + 4);
    expect(counted).toBeLessThan(failures(10, 64, 60, { window: 16, inFlight: "ignore" }));
  });
});
