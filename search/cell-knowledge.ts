import { DEFAULTS } from "./defaults.js";

/** What is known of a cell besides its name: a function of the cell, told with the visits of it. The first telling counts. */
export interface CellKnowledge {
  /** Names of cells that lie beside it, by kind: `{ horizontal: ["3,1", "5,1"], vertical: ["4,0"] }`. */
  readonly neighbours?: Readonly<Record<string, readonly string[]>>;
  /** Cells of one place differ in what was achieved only, so that their scores can be compared. */
  readonly place?: string;
  /** How far in the game it is: an integer of at least 0. Default 0. */
  readonly level?: number;
}

/** How much a cell gains by what is known of it. */
export interface KnowledgeWeights {
  /** For each neighbour that is not in the archive, by kind. Kinds that are left out have 0. */
  readonly neighbours: Readonly<Record<string, number>>;
  /** Where no cell of the same place has a lower, a higher score. */
  readonly noLower: number;
  readonly noHigher: number;
  /** The weight is multiplied by this for each level below the highest. */
  readonly lowLevel: number;
}

/** What the weights need to look up in the archive; `score` is null where a cell is not in it. */
export interface KnownCells {
  score(cell: number): number | null;
  find(name: string): number | undefined;
}

/** What is known of the cells of one archive, and whose weight has to be found anew when a cell enters it. */
export class KnowledgeTable {
  readonly #weights: KnowledgeWeights;
  readonly #cells: KnownCells;
  readonly #of = new Map<number, CellKnowledge>();
  /** Cells by the name of a neighbour. */
  readonly #beside = new Map<string, number[]>();
  readonly #places = new Map<string, PlaceScores>();
  #highest = 0;

  constructor(weights: KnowledgeWeights, cells: KnownCells, data: readonly (readonly [number, CellKnowledge])[]) {
    this.#weights = weights;
    this.#cells = cells;
    for (const [cell, knowledge] of data) this.note(cell, knowledge);
  }

  /** Returns the cells whose weights have to be found anew; all, where there is a new highest level. */
  note(cell: number, knowledge: CellKnowledge): readonly number[] | "all" {
    if (this.#of.has(cell)) return [];
    this.#of.set(cell, knowledge);
    for (const names of Object.values(knowledge.neighbours ?? {}))
      for (const name of names) append(this.#beside, name, cell);
    const affected = this.#placeScore(cell);
    const isHighest = (knowledge.level ?? 0) > this.#highest;
    if (isHighest) this.#highest = knowledge.level ?? 0;
    return isHighest ? "all" : [cell, ...affected];
  }

  /** Takes note of a cell's score, and returns the cells whose weights that changes; `name` is the cell's. */
  scored(cell: number, name: string): readonly number[] {
    return [...(this.#beside.get(name) ?? []), ...this.#placeScore(cell)];
  }

  /** Added to the other terms. */
  term(cell: number): number {
    const knowledge = this.#of.get(cell);
    if (knowledge === undefined) return 0;
    let sum = 0;
    for (const [kind, names] of Object.entries(knowledge.neighbours ?? {})) {
      const weight = Object.hasOwn(this.#weights.neighbours, kind) ? (this.#weights.neighbours[kind] as number) : 0;
      if (weight === 0) continue;
      for (const name of names) if (!this.#isArchived(name)) sum += weight;
    }
    return knowledge.place === undefined ? sum : sum + this.#scoreTerm(cell, knowledge.place);
  }

  /** All terms together are multiplied by it. */
  factor(cell: number): number {
    const below = this.#highest - (this.#of.get(cell)?.level ?? 0);
    let factor = 1;
    for (let level = 0; level < below && factor > 0; level += 1) factor *= this.#weights.lowLevel;
    return factor;
  }

  toData(): (readonly [number, CellKnowledge])[] {
    return [...this.#of];
  }

  #isArchived(name: string): boolean {
    const cell = this.#cells.find(name);
    return cell !== undefined && this.#cells.score(cell) !== null;
  }

  #scoreTerm(cell: number, place: string): number {
    const own = this.#cells.score(cell);
    const scores = this.#places.get(place);
    if (own === null || scores === undefined) return 0;
    return (scores.lowest < own ? 0 : this.#weights.noLower) + (scores.highest > own ? 0 : this.#weights.noHigher);
  }

  #placeScore(cell: number): readonly number[] {
    const place = this.#of.get(cell)?.place;
    const score = this.#cells.score(cell);
    if (place === undefined || score === null) return [];
    let scores = this.#places.get(place);
    if (scores === undefined) {
      scores = new PlaceScores();
      this.#places.set(place, scores);
    }
    return scores.set(cell, score);
  }
}

/** Scores of the cells of one place. What a change costs does not depend on how many cells have other scores. */
class PlaceScores {
  lowest = Number.POSITIVE_INFINITY;
  highest = Number.NEGATIVE_INFINITY;
  readonly #scores = new Map<number, number>();
  readonly #cells = new Map<number, Set<number>>();

  /** Returns the cells that have become or were the lowest or highest, and this one. */
  set(cell: number, score: number): readonly number[] {
    const before = this.#scores.get(cell);
    if (before === score) return [];
    const { lowest, highest } = this;
    this.#scores.set(cell, score);
    const equals = this.#cells.get(score);
    if (equals === undefined) this.#cells.set(score, new Set([cell]));
    else equals.add(cell);
    this.lowest = Math.min(lowest, score);
    this.highest = Math.max(highest, score);
    if (before !== undefined) this.#leave(before, cell);
    const changed: number[] = [];
    if (this.lowest !== lowest) changed.push(lowest, this.lowest);
    if (this.highest !== highest) changed.push(highest, this.highest);
    return [cell, ...changed.flatMap((extreme) => [...(this.#cells.get(extreme) ?? [])])];
  }

  #leave(score: number, cell: number): void {
    const cells = this.#cells.get(score);
    cells?.delete(cell);
    if (cells === undefined || cells.size > 0) return;
    this.#cells.delete(score);
    if (score !== this.lowest && score !== this.highest) return;
    this.lowest = Number.POSITIVE_INFINITY;
    this.highest = Number.NEGATIVE_INFINITY;
    for (const left of this.#cells.keys()) {
      this.lowest = Math.min(this.lowest, left);
      this.highest = Math.max(this.highest, left);
    }
  }
}

/** Of cells that come from a guest: so that they do not fill the memory. */
const MOST_NEIGHBOURS = 64;
const LARGEST_LEVEL = 1_000;
const KNOWN = new Set(["neighbours", "place", "level"]);

type Refusal = (field: string, given: unknown, wanted: string) => Error;

/** Checks and copies what was told, neighbours in the order of their kinds. */
export function recordKnowledge(given: unknown, field: string, refuse: Refusal): CellKnowledge {
  if (typeof given !== "object" || given === null) throw refuse(field, given, "an object");
  for (const name of Object.keys(given))
    if (!KNOWN.has(name)) throw refuse(`${field}.${name}`, "present", `left out; known are ${[...KNOWN].join(", ")}`);
  const { neighbours, place, level } = given as Partial<Record<keyof CellKnowledge, unknown>>;
  if (place !== undefined && !isName(place)) throw refuse(`${field}.place`, place, "a short string");
  if (level !== undefined && !(Number.isInteger(level) && (level as number) >= 0 && (level as number) <= LARGEST_LEVEL))
    throw refuse(`${field}.level`, level, `an integer from 0 to ${LARGEST_LEVEL}`);
  return {
    ...(neighbours === undefined ? {} : { neighbours: recordNeighbours(neighbours, `${field}.neighbours`, refuse) }),
    ...(place === undefined ? {} : { place: place as string }),
    ...(level === undefined ? {} : { level: level as number }),
  };
}

function recordNeighbours(given: unknown, field: string, refuse: Refusal): Record<string, string[]> {
  if (typeof given !== "object" || given === null) throw refuse(field, given, "lists of cells by kind");
  let total = 0;
  const kinds = Object.entries(given as Record<string, unknown>).map(([kind, names]): [string, string[]] => {
    if (!isName(kind) || !Array.isArray(names) || !names.every(isName))
      throw refuse(`${field}.${kind}`, names, "an array of short strings");
    total += names.length;
    return [kind, [...names]];
  });
  if (total > MOST_NEIGHBOURS) throw refuse(field, total, `at most ${MOST_NEIGHBOURS} cells`);
  return Object.fromEntries(kinds.sort(([one], [two]) => (one < two ? -1 : 1)));
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value.length <= DEFAULTS.maxKeyLength;
}

function append(lists: Map<string, number[]>, name: string, cell: number): void {
  const list = lists.get(name);
  if (list === undefined) lists.set(name, [cell]);
  else list.push(cell);
}
