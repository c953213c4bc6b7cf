import { describe, expect, test } from "vitest";
import { exportNodes, type UctOptions, uct } from "../index.js";
import {
  frozenLake,
  LAKE_ROOT,
  lakeValues,
  minimax,
  mover,
  pGame,
  pGameActions,
  pGameValue,
  squares,
  ticTacToe,
} from "../testing/games.js";
import { runTree, runTreeSchedule } from "../testing/tree-run.js";

describe("tic-tac-toe", () => {
  test("all 5,478 positions, the solver proves what minimax says", () => {
    const values = minimax();
    expect(values.size).toBe(5_478);
    const marks = ([board]: readonly [string, number]): number => [...board].filter((mark) => mark !== ".").length;
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
      for (const { key, kind, proven: isProven, value } of exportNodes(state))
        if (kind === "state" && isProven && key !== null) proven.set(key, value);
    }
    const open = [...values].filter(([board]) => squares(board).length > 0);
    expect(open.filter(([board, value]) => proven.get(board) !== value)).toEqual([]);
  });

  test("position with a win in one, proven after few steps and without a look at the rest", () => {
    const board = "xx.oo....";
    const root = { actions: squares(board), key: board, player: mover(board) };
    const state = uct.init({ root, players: 2, solver: true, range: [-1, 1], window: 1 }, 1);
    expect(runTree(uct, state, ticTacToe)).toHaveLength(1);
    expect(uct.actions(state)[0]).toMatchObject({ action: "2", return: 1, proven: true });
  });
});

describe("frozen lake, 4x4, exact transition table", () => {
  const discount = 0.95;
  const { cells } = lakeValues(discount);
  const plain: UctOptions = {
    root: LAKE_ROOT,
    stochastic: true,
    discount,
    range: [0, 1],
    exploration: 0.3,
    backup: "max",
  };

  /** Error of the root's value against value iteration, after 2,000 simulations with the exact values at the leaves. */
  function error(options: Partial<UctOptions>): number {
    const state = uct.init({ ...plain, window: 1, maxSimulations: 2_000, ...options }, 3);
    runTree(
      uct,
      state,
      frozenLake((cell) => cells[cell] as number),
    );
    return Math.abs(uct.node(state, 0).score - (cells[0] as number));
  }

  test("max backup, every simulation samples anew, within .01 of value iteration", () => {
    expect(error({})).toBeLessThan(0.01);
  });

  test("average backup, which counts its own exploration, within .06", () => {
    expect(error({ backup: "average" })).toBeLessThan(0.06);
  });

  test("double progressive widening, within .03", () => {
    expect(error({ widening: { k: 1, alpha: 0.5 }, outcomeWidening: { k: 1, alpha: 0.5 } })).toBeLessThan(0.03);
  });

  test("16 under way, within .02", () => {
    expect(error({ window: 16 })).toBeLessThan(0.02);
  });
});

describe("P-games", () => {
  /** How many of the games the recommended first move throws away. */
  function failures(simulations: number, options: Partial<UctOptions>, games = 60): number {
    let failed = 0;
    for (let seed = 0; seed < games; seed += 1) {
      const game = { seed, branching: 2, depth: 10 };
      const root = { actions: pGameActions(game), key: "" };
      const bounds = { players: 2, range: [0, 1], maxSimulations: simulations } as const;
      const state = uct.init({ root, window: 1, ...bounds, ...options }, 5);
      const workers = options.window ?? 1;
      runTreeSchedule(uct, state, pGame(game), { seed: 1, workers, failure: 0, repeat: 0, restart: 0 });
      if (pGameValue(game, uct.best(state).cell ?? "") !== pGameValue(game)) failed += 1;
    }
    return failed;
  }

  test("choices that lose the game get rarer with the number of simulations", () => {
    const [few, some, many] = [8, 64, 256].map((simulations) => failures(simulations, {}, 25));
    expect(few).toBeGreaterThan(2 * (some as number));
    expect(many).toBe(0);
  });

  test("16 under way, a few per cent worse than one at a time, and better than without counts", () => {
    const counted = failures(64, { window: 16 });
    expect(counted).toBeLessThanOrEqual(failures(64, {}) + 4);
    expect(counted).toBeLessThan(failures(64, { window: 16, inFlight: "ignore" }));
  });
});
