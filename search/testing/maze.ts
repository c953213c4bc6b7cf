/** A deterministic grid in which only walking far is rewarded: for the tests of this folder. */

export interface MazeState {
  readonly x: number;
  readonly y: number;
}

/** One string a row; `#` is a wall. */
export interface Maze {
  readonly rows: readonly string[];
  readonly start: MazeState;
}

export const MOVES = ["north", "east", "south", "west"] as const;

const OFFSETS: Readonly<Record<string, MazeState>> = {
  north: { x: 0, y: -1 },
  east: { x: 1, y: 0 },
  south: { x: 0, y: 1 },
  west: { x: -1, y: 0 },
};

export function move(maze: Maze, state: MazeState, action: string): MazeState {
  const offset = OFFSETS[action];
  if (offset === undefined) throw new Error(`No such move: ${action}`);
  const next = { x: state.x + offset.x, y: state.y + offset.y };
  return isFree(maze, next) ? next : state;
}

export function cellOf({ x, y }: MazeState): string {
  return `${x},${y}`;
}

export function countCells(maze: Maze): number {
  return maze.rows.reduce((sum, row) => sum + [...row].filter((square) => square !== "#").length, 0);
}

/** A corridor of `length` squares, wound up in rows: far away by steps, and simple. */
export function corridor(length: number, width: number): Maze {
  const rows: string[] = [];
  for (let left = length, row = 0; left > 0; row += 1) {
    const turnsLeft = row % 2 === 1;
    if (row % 2 === 0 || row === 0) {
      const squares = Math.min(left, width);
      const line = ".".repeat(squares) + "#".repeat(width - squares);
      rows.push(row % 4 === 0 ? line : [...line].reverse().join(""));
      left -= squares;
    } else if (turnsLeft) {
      const isRight = row % 4 === 1;
      rows.push(isRight ? `${"#".repeat(width - 1)}.` : `.${"#".repeat(width - 1)}`);
      left -= 1;
    }
  }
  return { rows, start: { x: 0, y: 0 } };
}

function isFree(maze: Maze, { x, y }: MazeState): boolean {
  const square = maze.rows[y]?.[x];
  return square !== undefined && square !== "#";
}
