import { drawInteger, drawUniform } from "../index.js";
import type { TreeWorld } from "./tree-run.js";

const LINES = ["012", "345", "678", "036", "147", "258", "048", "246"].map((line) => [...line].map(Number));

/** Nine characters: x moves first and is player 0. */
type Board = string;

function winner(board: Board): "x" | "o" | null {
  for (const [a, b, c] of LINES as [number, number, number][]) {
    const mark = board[a];
    if (mark !== "." && mark === board[b] && mark === board[c]) return mark as "x" | "o";
  }
  return null;
}

export function squares(board: Board): string[] {
  if (winner(board) !== null) return [];
  return [...board].flatMap((mark, square) => (mark === "." ? [`${square}`] : []));
}

export function mover(board: Board): 0 | 1 {
  return [...board].filter((mark) => mark !== ".").length % 2 === 0 ? 0 : 1;
}

export function place(board: Board, square: string): Board {
  const at = Number(square);
  return board.slice(0, at) + (mover(board) === 0 ? "x" : "o") + board.slice(at + 1);
}

/** A step of tic-tac-toe from the board that is the key of where it starts; states are worth 0. */
export const ticTacToe: TreeWorld = ({ from, action }) => {
  const board = place(from.key ?? "", action ?? "");
  const won = winner(board);
  const actions = squares(board);
  if (actions.length === 0)
    return { kind: "value", key: board, reward: won === null ? 0 : won === "x" ? 1 : -1, terminated: true };
  return { kind: "value", key: board, reward: 0, value: 0, terminated: false, actions, player: mover(board) };
};

/** Value of every position that can come up, for player 0, by plain minimax. */
export function minimax(board: Board = ".........", values = new Map<Board, number>()): Map<Board, number> {
  if (values.has(board)) return values;
  const won = winner(board);
  let value = won === null ? 0 : won === "x" ? 1 : -1;
  const next = squares(board).map((square) => place(board, square));
  for (const after of next) minimax(after, values);
  const below = next.map((after) => values.get(after) as number);
  if (below.length > 0) value = mover(board) === 0 ? Math.max(...below) : Math.min(...below);
  return values.set(board, value);
}

/** A P-game (Kocsis and Szepesvári 2006; Smith and Nau 1994): edges have random worths, a leaf is worth the sum on its way. */
interface PGame {
  readonly seed: number;
  readonly branching: number;
  readonly depth: number;
}

const edges = new Map<string, number>();

/** Worth of the edge at the end of a path; kept, because every playout asks for some of the same. */
function edge({ seed }: PGame, path: string): number {
  const name = `${seed}/${path}`;
  const known = edges.get(name);
  if (known !== undefined) return known;
  const size = drawUniform(seed, "edge", path);
  const worth = path.length % 2 === 1 ? size : -size;
  edges.set(name, worth);
  return worth;
}

function sumOf(game: PGame, path: string): number {
  let sum = 0;
  for (let length = 1; length <= path.length; length += 1) sum += edge(game, path.slice(0, length));
  return sum;
}

/** 1 where player 0, who maximises, has won. */
function leafOf(game: PGame, path: string): number {
  return sumOf(game, path) > 0 ? 1 : 0;
}

export function pGameActions({ branching }: PGame): string[] {
  return Array.from({ length: branching }, (_, index) => `${index}`);
}

/** By minimax; `sum` is what the edges of the path are worth. */
export function pGameValue(game: PGame, path = "", sum = sumOf(game, path)): number {
  if (path.length === game.depth) return sum > 0 ? 1 : 0;
  const best = path.length % 2 === 0 ? 1 : 0;
  for (const action of pGameActions(game))
    if (pGameValue(game, path + action, sum + edge(game, path + action)) === best) return best;
  return 1 - best;
}

/** A step of a P-game with a random playout for the new state. */
export function pGame(game: PGame): TreeWorld {
  return ({ from, action, seed }) => {
    const path = `${from.key}${action}`;
    if (path.length === game.depth) return { kind: "value", key: path, reward: leafOf(game, path), terminated: true };
    let end = path;
    while (end.length < game.depth) end += `${drawInteger(seed, game.branching, "playout", end.length)}`;
    const player = path.length % 2 === 1 ? 1 : 0;
    return {
      kind: "value",
      key: path,
      reward: 0,
      value: leafOf(game, end),
      terminated: false,
      actions: pGameActions(game),
      player,
    };
  };
}
