import { describe, expect, test } from "vitest";
import { KnowledgeTable } from "./cell-knowledge.js";
import {
  type ArchiveState,
  type CellKnowledge,
  exportTree,
  type GoExploreOptions,
  goExplore,
  PAPER_MONTEZUMA,
  redivide,
  SearchError,
  type Visit,
} from "./index.js";

/** Counters weigh nothing, so that what is left is what is known of the cells. */
const nothing = { weight: 0, power: 1 };
const counts = { seen: nothing, chosen: nothing, actions: nothing, chosenSinceNew: nothing };

function beside(x: number, more: Partial<CellKnowledge> = {}): CellKnowledge {
  return { neighbours: { horizontal: [`${x - 1}`, `${x + 1}`], vertical: [`${x} above`] }, ...more };
}

function start(knowledge: NonNullable<NonNullable<GoExploreOptions["weights"]>["knowledge"]>, seed = 1): ArchiveState {
  const root = { cell: "0", knowledge: beside(0) };
  return goExplore.init({ root, window: 1, weights: { ...counts, knowledge } }, seed);
}

function tell(state: ArchiveState, ...visits: (Partial<Visit> & { readonly cell: string })[]): void {
  const [trial] = goExplore.ask(state, 1).trials;
  if (trial === undefined) throw new Error("Nothing to choose");
  const step = { action: "go", reward: 0, terminated: false };
  const told = visits.map((visit, index) => ({ ...step, candidate: { checkpoint: `${trial.id}/${index}` }, ...visit }));
  goExplore.tell(state, trial.id, 0, { kind: "value", visits: told });
}

function weights(state: ArchiveState): Record<string, number> {
  return Object.fromEntries(exportTree(state).cells.map(({ cell, weight }) => [cell ?? "end", weight]));
}

describe("weights with domain knowledge, as computed by hand", () => {
  test("neighbours that are not in the archive, by kind; a cell that enters it counts for those beside it", () => {
    const state = start({ neighbours: { horizontal: 2, vertical: 0.3 }, lowLevel: 1 });
    expect(weights(state)).toEqual({ 0: 2 * 2 + 0.3 });
    tell(state, { cell: "1", knowledge: beside(1) }, { cell: "2", knowledge: beside(2) });
    expect(weights(state)).toEqual({ 0: 2 + 0.3, 1: 0.3, 2: 2 + 0.3 });
    // Seen, and no state of it kept: it is still missing.
    goExplore.ask(state, 1);
    goExplore.tell(state, 1, 0, { kind: "value", visits: [{ action: "go", reward: 0, cell: "3", terminated: false }] });
    expect(weights(state)[2]).toBe(2 + 0.3);
  });

  test("cell that no trial came through, weighed anew when the one beside it enters, and when one of its place is told of late", () => {
    const place = { place: "hall" };
    const told = [
      { cell: "3", score: 5 },
      { cell: "3", score: 0, knowledge: beside(3, place) },
    ];
    /** Weight of cell 2 after each trial; null where one of them did not start at the root, and so may have weighed it anew. */
    const weightsOfTwo = (seed: number): (number | undefined)[] | null => {
      const state = start({ neighbours: { horizontal: 2 }, noHigher: 10, lowLevel: 1 }, seed);
      tell(state, { cell: "1", knowledge: beside(1) }, { cell: "2", knowledge: beside(2, place), score: 1 });
      const found = [weights(state)[2]];
      for (const visit of told) {
        if (goExplore.forecast(state, 1)[0]?.node !== 0) return null;
        tell(state, visit);
        found.push(weights(state)[2]);
      }
      return found;
    };
    const runs = Array.from({ length: 100 }, (_, seed) => weightsOfTwo(seed)).filter((run) => run !== null);
    expect(runs.length).toBeGreaterThan(0);
    for (const run of runs) expect(run).toEqual([2 + 10, 10, 0]);
  });

  test("levels: each one below the highest multiplies by lowLevel", () => {
    const state = start({ neighbours: { horizontal: 1 }, lowLevel: 0.1 });
    tell(state, { cell: "7", knowledge: beside(7, { level: 2 }) });
    expect(weights(state)[0]).toBeCloseTo(2 * 0.1 * 0.1, 12);
    expect(weights(state)[7]).toBe(2);
  });

  test("one place: the cell with the lowest score has noLower, the one with the highest noHigher", () => {
    const state = start({ neighbours: { horizontal: 1 }, noLower: 1, noHigher: 10, lowLevel: 1 });
    const place = { knowledge: { place: "hall" } };
    tell(state, ...[1, 2, 3].map((score) => ({ cell: `with ${score}`, score, ...place })));
    expect(weights(state)).toEqual({ 0: 2, "with 1": 1, "with 2": 0, "with 3": 10 });
  });

  test("one place: weights follow the lowest and highest score when the cells that had them move on", () => {
    const scores = new Map<number, number>();
    const weights = { neighbours: {}, noLower: 1, noHigher: 10, lowLevel: 1 };
    const table = new KnowledgeTable(weights, { find: () => undefined, score: (cell) => scores.get(cell) ?? null }, []);
    const terms = () => [1, 2, 3].map((cell) => table.term(cell));
    const move = (cell: number, score: number) => {
      scores.set(cell, score);
      return new Set(table.scored(cell, `${cell}`));
    };
    for (const cell of [1, 2, 3]) table.note(cell, { place: "hall" });
    for (const cell of [1, 2, 3]) move(cell, cell);
    expect(terms()).toEqual([1, 0, 10]);
    expect(move(1, 3)).toEqual(new Set([1, 2]));
    expect(terms()).toEqual([10, 1, 10]);
    expect(move(3, 2)).toEqual(new Set([3]));
    expect(terms()).toEqual([10, 1, 1]);
    expect(move(2, 2)).toEqual(new Set());
  });

  test("one place with many cells: a score that is no extreme leaves the others' weights alone", () => {
    const scores = new Map<number, number>();
    const weights = { neighbours: {}, noLower: 1, noHigher: 10, lowLevel: 1 };
    const table = new KnowledgeTable(weights, { find: () => undefined, score: (cell) => scores.get(cell) ?? null }, []);
    const cells = 1_000;
    let affected = 0;
    for (let cell = 0; cell < cells; cell += 1) {
      scores.set(cell, cell);
      const reweighed = table.note(cell, { place: "hall" });
      affected += reweighed === "all" ? cells : new Set(reweighed).size;
    }
    expect(affected).toBeLessThan(3 * cells);
  });

  test("numbers of the scripts for Montezuma's Revenge, as they stand there", () => {
    const { weights } = goExplore.init({ root: { cell: "0" }, ...PAPER_MONTEZUMA }, 1).config;
    expect(weights.knowledge).toEqual({
      neighbours: { horizontal: 0.1, vertical: 0 },
      noLower: 0,
      noHigher: 1,
      lowLevel: 0.1,
    });
    expect(weights.seen).toEqual({ weight: 1, power: 0.5 });
  });
});

describe("what is refused", () => {
  const refused = (call: () => unknown): string | undefined => {
    try {
      call();
    } catch (error) {
      if (error instanceof SearchError) return error.field;
    }
    return undefined;
  };

  test.each<[object, string]>([
    [{ lowLevel: 2 }, "weights.knowledge.lowLevel"],
    [{ noHigher: Number.NaN }, "weights.knowledge.noHigher"],
    [{ neighbours: { horizontal: -1 } }, "weights.knowledge.neighbours.horizontal"],
    [{ unheard: 1 }, "weights.knowledge.unheard"],
  ])("weights %j", (knowledge, field) => {
    expect(refused(() => goExplore.init({ root: { cell: "0" }, weights: { knowledge } as never }, 1))).toBe(field);
  });

  test.each<[object, string]>([
    [{ level: -1 }, "level"],
    [{ place: 7 }, "place"],
    [{ neighbours: { horizontal: [1] } }, "neighbours.horizontal"],
    [{ neighbours: { horizontal: Array(65).fill("x") } }, "neighbours"],
    [{ unheard: 1 }, "unheard"],
  ])("knowledge %j of a cell", (knowledge, field) => {
    const state = goExplore.init({ root: { cell: "0" } }, 1);
    const [trial] = goExplore.ask(state, 1).trials;
    const visit = { action: "go", reward: 0, cell: "1", terminated: false, knowledge } as never;
    const tell = () => goExplore.tell(state, trial?.id ?? -1, 0, { kind: "value", visits: [visit] });
    expect(refused(tell)).toBe(`visits[0].knowledge.${field}`);
    expect(refused(() => goExplore.init({ root: { cell: "0", knowledge } as never }, 1))).toBe(
      `root.knowledge.${field}`,
    );
  });

  test("cells divided anew, of which nothing would be known", () => {
    expect(refused(() => redivide(start({}), (sample) => sample))).toBe("state");
  });
});
