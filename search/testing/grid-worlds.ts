import { drawInteger, type StepResult, type TreeTrial } from "../index.js";
import type { TreeWorld } from "./tree-run.js";

/** What an action can lead to, each with equal probability: cell, reward, whether that is the end. */
interface GridOutcome {
  readonly cell: number;
  readonly reward: number;
  readonly isEnd: boolean;
}

/** A Markov decision process on a grid, as its exact transition table. */
export interface GridWorld {
  readonly start: number;
  /** `table[cell][move]`; empty for cells in which the environment has ended. */
  readonly table: readonly (readonly (readonly GridOutcome[])[])[];
}

export const MOVES = ["left", "down", "right", "up"] as const;

function go(
  cell: number,
  move: number,
  { width, height }: { readonly width: number; readonly height: number },
): number {
  const row = Math.floor(cell / width);
  const column = cell % width;
  const to = [
    [row, Math.max(0, column - 1)],
    [Math.min(height - 1, row + 1), column],
    [row, Math.min(width - 1, column + 1)],
    [Math.max(0, row - 1), column],
  ][move] as [number, number];
  return to[0] * width + to[1];
}

/** Frozen lake: S start, F frozen, H hole, G goal; each move goes astray to either side with probability 1/3 each. */
function frozenLake(rows: readonly string[]): GridWorld {
  const tiles = rows.join("");
  const size = { width: (rows[0] as string).length, height: rows.length };
  const isEnd = (cell: number): boolean => "HG".includes(tiles[cell] as string);
  const table = [...tiles].map((_, cell) => {
    if (isEnd(cell)) return [];
    return MOVES.map((_move, move) =>
      [3, 0, 1].map((turn) => {
        const to = go(cell, (move + turn) % 4, size);
        return { cell: to, reward: tiles[to] === "G" ? 1 : 0, isEnd: isEnd(to) };
      }),
    );
  });
  return { start: 0, table };
}

/** The maps of Gymnasium's FrozenLake-v1. */
export const LAKE_4 = frozenLake(["SFFF", "FHFH", "FFFH", "HFFG"]);
export const LAKE_8 = frozenLake([
  "SFFFFFFF",
  "FFFFFFFF",
  "FFFHFFFF",
  "FFFFFHFF",
  "FFFHFFFF",
  "FHHFFFHF",
  "FHFFHFHF",
  "FFFHFFFG",
]);

/**
 * Cliff walking (Sutton and Barto, example 6.6; Gymnasium's CliffWalking): from the lower left of 4 rows of 12 to the lower right, each
 * step costs 1; between them is the cliff, where a step costs 100 and leads back to the start.
 */
export const CLIFF: GridWorld = {
  start: 36,
  table: Array.from({ length: 48 }, (_, cell) => {
    if (cell > 36) return [];
    return MOVES.map((_move, move) => {
      const to = go(cell, move, { width: 12, height: 4 });
      const isCliff = to > 36 && to < 47;
      return [{ cell: isCliff ? 36 : to, reward: isCliff ? -100 : -1, isEnd: to === 47 }];
    });
  }),
};

/** Return of each move from a cell, where the values of all cells are given. */
function moveReturns({ table }: GridWorld, cell: number, values: readonly number[], discount: number): number[] {
  return (table[cell] ?? []).map((outcomes) => {
    const sum = outcomes.reduce(
      (total, to) => total + to.reward + (to.isEnd ? 0 : discount * (values[to.cell] as number)),
      0,
    );
    return sum / outcomes.length;
  });
}

/** Values of all cells for the best policy, by value iteration until nothing changes by 1e-14. */
export function cellValues(world: GridWorld, discount: number): number[] {
  return iterate(world, (returns) => Math.max(...returns), discount);
}

/** The same for the policy that takes every move with equal probability. */
export function randomValues(world: GridWorld, discount: number): number[] {
  return iterate(world, (returns) => returns.reduce((sum, value) => sum + value / returns.length, 0), discount);
}

function iterate(world: GridWorld, pick: (returns: readonly number[]) => number, discount: number): number[] {
  let values = world.table.map(() => 0);
  for (;;) {
    const next = world.table.map((moves, cell) =>
      moves.length === 0 ? 0 : pick(moveReturns(world, cell, values, discount)),
    );
    const change = Math.max(...next.map((value, cell) => Math.abs(value - (values[cell] as number))));
    values = next;
    if (change < 1e-14) return values;
  }
}

/** A step on the grid; a new state is worth what `worth` says. */
export function gridSteps({ table }: GridWorld, worth: (cell: number, trial: TreeTrial) => number): TreeWorld {
  return (trial) => {
    const outcomes = table[Number(trial.from.key)]?.[MOVES.indexOf(trial.action as "left")] ?? [];
    const { cell, reward, isEnd } = outcomes[drawInteger(trial.seed, outcomes.length, "slip")] as GridOutcome;
    const step: StepResult = { kind: "value", key: `${cell}`, reward, terminated: isEnd, actions: MOVES };
    return isEnd ? step : { ...step, value: worth(cell, trial) };
  };
}

/** Discounted return of random moves from a cell to the end, at most `limit` of them. */
export function randomPlayout(
  { table }: GridWorld,
  start: number,
  { seed, discount, limit }: { readonly seed: number; readonly discount: number; readonly limit: number },
): number {
  let cell = start;
  let sum = 0;
  let factor = 1;
  for (let step = 0; step < limit; step += 1) {
    const outcomes = (table[cell] ?? []).flat();
    const to = outcomes[drawInteger(seed, outcomes.length, "playout", step)] as GridOutcome;
    sum += factor * to.reward;
    if (to.isEnd) return sum;
    factor *= discount;
    cell = to.cell;
  }
  return sum;
}

/** The root of a search that starts in a cell. */
export function gridRoot(cell: number): { readonly actions: readonly string[]; readonly key: string } {
  return { actions: MOVES, key: `${cell}` };
}
