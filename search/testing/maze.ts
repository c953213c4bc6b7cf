/** A deterministic grid in which only walking far is rewarded: for the tests of this folder. */

export interface MazeState {
  readonly x: number;
  readonly y: number;
}

/** One string a row; `#` is a wall, `x` a pit. */
export interface Maze {
  readonly rows: readonly string[];
  readonly start: MazeState;
}

const PIT = "x";

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
  return maze.rows.reduce((sum, row) => sum + [...row].filter((square) => square === ".").length, 0);
}

/**
 * A winding corridor of `rows` rows with a pit beside every fourth square: a walk at random rarely lives long, and far away
 * is simple to reach for those who can return to where they were.
 */
export function corridor(rows: number, width: number): Maze {
  const lines: string[] = [];
  for (let row = 0; row < rows; row += 1) {
    lines.push(".".repeat(width));
    if (row === rows - 1) break;
    const isRight = row % 2 === 0;
    const wall = Array.from({ length: width - 1 }, (_, x) => (x % 4 === 1 ? PIT : "#")).join("");
    lines.push(isRight ? `${wall}.` : `.${[...wall].reverse().join("")}`);
  }
  return { rows: lines, start: { x: 0, y: 0 } };
}

export function isPit(maze: Maze, { x, y }: MazeState): boolean {
  return maze.rows[y]?.[x] === PIT;
}

function isFree(maze: Maze, { x, y }: MazeState): boolean {
  const square = maze.rows[y]?.[x];
  return square !== undefined && square !== "#";
}
