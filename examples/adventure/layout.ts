/**
 * Places the rooms of a map on a grid, so that passages are short, run the way that their words say, and keep clear of
 * other rooms and of each other. Equal maps get equal layouts.
 */

import type { CaveMap, MapPassage } from "./map.js";

export interface Cell {
  readonly x: number;
  readonly y: number;
}

/** Rooms by name. Places outdoors have y < 0, the cave lies from 0 down. */
export type Layout = ReadonlyMap<string, Cell>;

/** What a word says about the direction, and how sure it is: "down" may lead anywhere below. */
const DIRECTIONS: Readonly<Record<string, { readonly x: number; readonly y: number; readonly weight: number }>> = {
  north: { x: 0, y: -1, weight: 1 },
  south: { x: 0, y: 1, weight: 1 },
  east: { x: 1, y: 0, weight: 1 },
  west: { x: -1, y: 0, weight: 1 },
  ne: { x: Math.SQRT1_2, y: -Math.SQRT1_2, weight: 1 },
  se: { x: Math.SQRT1_2, y: Math.SQRT1_2, weight: 1 },
  sw: { x: -Math.SQRT1_2, y: Math.SQRT1_2, weight: 1 },
  nw: { x: -Math.SQRT1_2, y: -Math.SQRT1_2, weight: 1 },
  up: { x: 0, y: -1, weight: 0.5 },
  down: { x: 0, y: 1, weight: 0.5 },
  gully: { x: 0, y: 1, weight: 0.5 },
  downstream: { x: 0, y: 1, weight: 0.5 },
  upstream: { x: 0, y: -1, weight: 0.5 },
};

/** How much longer a column is than a row when both are drawn. */
const COLUMN_LENGTH = 1.8;
const COST = {
  /** A passage that runs against its word, at most twice this. */
  direction: 2.2,
  /** A passage under a room that it does not lead to. */
  covered: 7,
  crossing: 2.2,
  /** Times the square of the distance from the middle: a picture should be about as high as wide. */
  outlying: 0.07,
} as const;
const MAX_ROUNDS = 10;
/** Proposals of the annealing for each room, and how much worse the first and the last ones may make things. */
const ANNEALING = { proposals: 500, hot: 8, cold: 0.1 } as const;
/** How far from where it is, and from the middle of its neighbours, a better place for a room is looked for. */
const REACH = 2;

interface Line {
  readonly a: number;
  readonly b: number;
  /** Unit vectors from a to b that the words ask for. */
  readonly wishes: readonly { readonly x: number; readonly y: number; readonly weight: number }[];
}

interface Point {
  x: number;
  y: number;
}

export function layOut(map: CaveMap): Layout {
  const grid = new Grid(map);
  grid.placeAll();
  grid.anneal();
  for (let round = 0; round < MAX_ROUNDS && grid.improve(); round += 1);
  return grid.layout();
}

class Grid {
  readonly #names: readonly string[];
  readonly #outdoors: readonly boolean[];
  readonly #lines: readonly Line[];
  readonly #linesOf: readonly (readonly Line[])[];
  readonly #at: Point[];
  readonly #taken = new Map<string, number>();
  /** Of the cave, if its rooms filled a square of the page. */
  readonly #middleRow: number;

  constructor(map: CaveMap) {
    this.#names = map.rooms.map(({ name }) => name);
    this.#outdoors = map.rooms.map(({ outdoors }) => outdoors);
    const index = new Map(this.#names.map((name, room) => [name, room]));
    this.#lines = map.passages.filter(({ magic }) => !magic).map((passage) => toLine(passage, index));
    this.#linesOf = this.#names.map((_, room) => this.#lines.filter(({ a, b }) => a === room || b === room));
    this.#at = this.#names.map(() => ({ x: 0, y: 0 }));
    this.#middleRow = Math.sqrt(this.#names.length * COLUMN_LENGTH) / 2;
  }

  layout(): Layout {
    return new Map(this.#names.map((name, room) => [name, { ...(this.#at[room] as Point) }]));
  }

  /** Each room in the order of discovery, near where the first passage to a placed room wants it. */
  placeAll(): void {
    const placed = new Set<number>();
    for (let room = 0; room < this.#names.length; room += 1) {
      const line = this.#linesOf[room]?.find(({ a, b }) => placed.has(a === room ? b : a));
      this.#move(room, this.#freeNear(room, this.#wanted(room, line)));
      placed.add(room);
    }
  }

  /** Finds the large order of things: moves that make it worse are allowed, ever less. */
  anneal(): void {
    const random = new Dice();
    const proposals = ANNEALING.proposals * this.#names.length;
    for (let proposal = 0; proposal < proposals; proposal += 1) {
      const heat = ANNEALING.hot * (ANNEALING.cold / ANNEALING.hot) ** (proposal / proposals);
      const room = random.below(this.#names.length);
      const cell = this.#proposal(room, random);
      const other = this.#taken.get(key(cell));
      if (other === room || !this.#allows(room, cell)) continue;
      const from = { ...(this.#at[room] as Point) };
      const before = this.#costOf(room, other);
      this.#exchange(room, cell, other);
      const loss = this.#costOf(room, other) - before;
      if (loss > 0 && random.share() >= Math.exp(-loss / heat)) this.#exchange(room, from, other);
    }
  }

  /** Near where it is, near a neighbour, or where any other room is. */
  #proposal(room: number, random: Dice): Point {
    const lines = this.#linesOf[room] ?? [];
    const kind = random.below(4);
    if (kind === 0) return { ...(this.#at[random.below(this.#names.length)] as Point) };
    const line = kind === 1 || lines.length === 0 ? undefined : lines[random.below(lines.length)];
    const centre = this.#at[line === undefined ? room : line.a === room ? line.b : line.a] as Point;
    return { x: centre.x + random.below(5) - 2, y: centre.y + random.below(5) - 2 };
  }

  /** One round over all rooms; false when no room has a better place. */
  improve(): boolean {
    let improved = false;
    for (let room = 0; room < this.#names.length; room += 1) {
      const cost = this.#costOf(room);
      let best = { gain: 1e-9, apply: () => {} };
      for (const cell of this.#candidates(room)) {
        const other = this.#taken.get(key(cell));
        if (other === room || (other !== undefined && this.#outdoors[other] !== this.#outdoors[room])) continue;
        const from = { ...(this.#at[room] as Point) };
        const before = other === undefined ? cost : this.#costOf(room, other);
        this.#exchange(room, cell, other);
        const gain = before - this.#costOf(room, other);
        this.#exchange(room, from, other);
        if (gain > best.gain) best = { gain, apply: () => this.#exchange(room, cell, other) };
      }
      best.apply();
      improved ||= best.gain > 1e-9;
    }
    return improved;
  }

  #wanted(room: number, line: Line | undefined): Point {
    if (line === undefined) return { x: 0, y: this.#outdoors[room] ? -1 : 0 };
    const { x, y } = this.#at[line.a === room ? line.b : line.a] as Point;
    const [wish = { x: 0, y: 1 }] = line.wishes;
    const sign = line.a === room ? -1 : 1;
    return { x: x + sign * Math.round(wish.x * 1.2), y: y + sign * Math.round(wish.y * 1.2) };
  }

  #freeNear(room: number, wanted: Point): Point {
    for (let radius = 0; ; radius += 1) {
      for (const cell of square(wanted, radius)) {
        if (this.#allows(room, cell) && !this.#taken.has(key(cell))) return cell;
      }
    }
  }

  #allows(room: number, { y }: Point): boolean {
    return this.#outdoors[room] ? y < 0 : y >= 0;
  }

  #candidates(room: number): readonly Point[] {
    const neighbours = (this.#linesOf[room] ?? []).map(({ a, b }) => this.#at[a === room ? b : a] as Point);
    const middle = (axis: "x" | "y") =>
      Math.round(neighbours.reduce((sum, point) => sum + point[axis], 0) / Math.max(1, neighbours.length));
    const centres = [this.#at[room] as Point, ...(neighbours.length === 0 ? [] : [{ x: middle("x"), y: middle("y") }])];
    const cells = new Map<string, Point>();
    for (const centre of [...centres, ...neighbours]) {
      const reach = centres.includes(centre) ? REACH : 1;
      for (let radius = 0; radius <= reach; radius += 1) {
        for (const cell of square(centre, radius)) if (this.#allows(room, cell)) cells.set(key(cell), cell);
      }
    }
    return [...cells.values()];
  }

  #move(room: number, cell: Point): void {
    const at = this.#at[room] as Point;
    if (this.#taken.get(key(at)) === room) this.#taken.delete(key(at));
    at.x = cell.x;
    at.y = cell.y;
    this.#taken.set(key(cell), room);
  }

  /** Moves a room to a cell; who is there takes the place that it leaves. */
  #exchange(room: number, cell: Point, other: number | undefined): void {
    const from = { ...(this.#at[room] as Point) };
    this.#move(room, cell);
    if (other !== undefined) {
      const at = this.#at[other] as Point;
      at.x = from.x;
      at.y = from.y;
      this.#taken.set(key(from), other);
    }
  }

  #outlying(room: number): number {
    const { x, y } = this.#at[room] as Point;
    const middle = this.#outdoors[room] ? -1 : this.#middleRow;
    return COST.outlying * ((x * COLUMN_LENGTH) ** 2 + (y - middle) ** 2);
  }

  /** Everything about the passages of one room or two, and the passages that run under them. */
  #costOf(room: number, other = room): number {
    let cost = this.#outlying(room) + (other === room ? 0 : this.#outlying(other));
    for (const line of this.#lines) {
      if (isEnd(line, room) || isEnd(line, other)) {
        cost += this.#lineCost(line, room, other);
      } else {
        if (this.#covers(room, line)) cost += COST.covered;
        if (other !== room && this.#covers(other, line)) cost += COST.covered;
      }
    }
    return cost;
  }

  #lineCost(line: Line, room: number, other: number): number {
    const a = this.#at[line.a] as Point;
    const b = this.#at[line.b] as Point;
    const dx = b.x - a.x;
    const dy = b.y - a.y;
    let cost = ((dx * COLUMN_LENGTH) ** 2 + dy ** 2) ** 0.7;
    for (const { x, y, weight } of line.wishes) {
      cost += COST.direction * weight * (1 - (dx * x + dy * y) / Math.sqrt(dx * dx + dy * dy));
    }
    for (let under = 0; under < this.#names.length; under += 1) if (this.#covers(under, line)) cost += COST.covered;
    for (const crossing of this.#lines) {
      if (!this.#cross(line, crossing)) continue;
      // Where both lines belong to these rooms, the pair is met twice.
      const isMet = isEnd(crossing, room) || isEnd(crossing, other);
      cost += isMet ? COST.crossing / 2 : COST.crossing;
    }
    return cost;
  }

  /** Whether a line runs under a room that is not one of its ends. */
  #covers(room: number, { a, b }: Line): boolean {
    if (room === a || room === b) return false;
    const p = this.#at[a] as Point;
    const q = this.#at[b] as Point;
    const r = this.#at[room] as Point;
    // Most rooms are far from most lines.
    if ((r.x > p.x && r.x > q.x) || (r.x < p.x && r.x < q.x) || (r.y > p.y && r.y > q.y)) return false;
    const dx = q.x - p.x;
    const dy = q.y - p.y;
    const along = ((r.x - p.x) * dx + (r.y - p.y) * dy) / (dx * dx + dy * dy);
    if (!(along > 0 && along < 1)) return false;
    return Math.abs(p.x + along * dx - r.x) < 0.45 && Math.abs(p.y + along * dy - r.y) < 0.3;
  }

  #cross(left: Line, right: Line): boolean {
    if (left.a === right.a || left.a === right.b || left.b === right.a || left.b === right.b) return false;
    const p = this.#at[left.a] as Point;
    const q = this.#at[left.b] as Point;
    const r = this.#at[right.a] as Point;
    const s = this.#at[right.b] as Point;
    if ((r.x > p.x && r.x > q.x && s.x > p.x && s.x > q.x) || (r.x < p.x && r.x < q.x && s.x < p.x && s.x < q.x)) {
      return false;
    }
    return turn(p, q, r) * turn(p, q, s) < 0 && turn(r, s, p) * turn(r, s, q) < 0;
  }
}

function isEnd({ a, b }: Line, room: number): boolean {
  return a === room || b === room;
}

/** A fixed sequence of pseudo-random numbers (mulberry32): equal maps must get equal layouts. */
class Dice {
  #state = 1;

  /** At least 0, less than 1. */
  share(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(limit: number): number {
    return Math.floor(this.share() * limit);
  }
}

function toLine(passage: MapPassage, index: ReadonlyMap<string, number>): Line {
  const wishes = [
    ...passage.there.map((word) => ({ word, sign: 1 })),
    ...passage.back.map((word) => ({ word, sign: -1 })),
  ].flatMap(({ word, sign }) => {
    const direction = DIRECTIONS[word];
    return direction === undefined ? [] : [{ ...direction, x: sign * direction.x, y: sign * direction.y }];
  });
  return { a: index.get(passage.a) as number, b: index.get(passage.b) as number, wishes };
}

function turn(p: Point, q: Point, r: Point): number {
  return Math.sign((q.x - p.x) * (r.y - p.y) - (q.y - p.y) * (r.x - p.x));
}

function key({ x, y }: Point): string {
  return `${x},${y}`;
}

/** The cells at this distance, in a fixed order that starts near the axes. */
function square({ x, y }: Point, radius: number): readonly Point[] {
  if (radius === 0) return [{ x, y }];
  const cells: Point[] = [];
  for (let off = 0; off <= radius; off += 1) {
    for (const side of off === 0 ? [0] : [-off, off]) {
      cells.push({ x: x + radius, y: y + side }, { x: x - radius, y: y + side });
      if (off < radius) cells.push({ x: x + side, y: y + radius }, { x: x + side, y: y - radius });
    }
  }
  return cells;
}
