/** The guest's side of `walk-environment.ts`: a walk on a grid with walls, one command a line. Plain data, so it forks. */

import type { FakeProgram } from "../fakes/fake-guest.js";

export interface Walk {
  readonly x: number;
  readonly y: number;
  readonly gold: boolean;
  readonly moves: number;
  readonly dead: boolean;
}

const SIZE = 6;
const MOVES: Readonly<Record<string, readonly [number, number]>> = {
  north: [0, -1],
  south: [0, 1],
  west: [-1, 0],
  east: [1, 0],
};

function isWall(x: number, y: number): boolean {
  const outside = x < 0 || y < 0 || x >= SIZE || y >= SIZE;
  return outside || (x === 2 && y < 4) || (x === 4 && y > 1);
}

export function walkOn(walk: Walk, line: string): Walk {
  const moves = walk.moves + 1;
  if (line === "take") return { ...walk, moves, gold: walk.gold || (walk.x === 5 && walk.y === 5) };
  if (line === "jump") return { ...walk, moves, dead: walk.x === 0 && walk.y === 5 };
  const [dx, dy] = MOVES[line] ?? [0, 0];
  return isWall(walk.x + dx, walk.y + dy) ? { ...walk, moves } : { ...walk, moves, x: walk.x + dx, y: walk.y + dy };
}

/** Answers with its state as JSON; `score` counts as a move, so that asking in the wrong sandbox is found out. */
export const walkProgram: FakeProgram = {
  start: () => ({ state: { x: 0, y: 0, gold: false, moves: 0, dead: false } satisfies Walk, text: "ready\n" }),
  input: (state, line) => {
    const next = walkOn(state as Walk, line);
    if (line !== "score")
      return { state: next, text: `${JSON.stringify(next)}\n`, ...(next.dead ? { exitCode: 0 } : {}) };
    return { state: next, text: `${next.x + next.y + (next.gold ? 100 : 0)}\n` };
  },
};
