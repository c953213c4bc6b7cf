import { Column } from "../column.js";
import { NameTable } from "../name-table.js";

const NONE = -1;

/** What became of a solution that was offered to a cell. */
export type Placement = "new" | "improved" | "refused";

export interface GridRules {
  /** α: how far an accepted solution moves the threshold of its cell towards its objective. */
  readonly learningRate: number;
  /** Threshold of an empty cell; null: anything is accepted there. */
  readonly thresholdMin: number | null;
}

export interface GridData {
  readonly cells: readonly string[];
  readonly elite: readonly number[];
  readonly threshold: readonly number[];
}

export interface Placed {
  readonly placement: Placement;
  /** Objective minus the threshold that it met; the objective itself in an empty cell without threshold. */
  readonly value: number;
  /** The solution that was replaced, or -1. */
  readonly replaced: number;
}

/** One elite a cell, with the threshold that the next one has to exceed: the archive of MAP-Elites and of CMA-MAE. */
export class EliteGrid {
  readonly #rules: GridRules;
  readonly #cells: NameTable;
  readonly #elite: Column;
  readonly #threshold: Column;

  constructor(rules: GridRules, data: GridData = { cells: [], elite: [], threshold: [] }) {
    this.#rules = rules;
    this.#cells = new NameTable(data.cells);
    this.#elite = new Column(data.elite);
    this.#threshold = new Column(data.threshold);
  }

  /** Cells with an elite, in the order of their discovery. */
  get size(): number {
    return this.#elite.length;
  }

  cell(index: number): string {
    return this.#cells.name(index);
  }

  elite(index: number): number {
    return this.#elite.get(index);
  }

  threshold(index: number): number {
    return this.#threshold.get(index);
  }

  /** A solution that exceeds the threshold of its cell becomes its elite, and the threshold moves towards it. */
  offer(cell: string, solution: number, objective: number): Placed {
    const { learningRate, thresholdMin } = this.#rules;
    const index = this.#cells.find(cell);
    const met = index === undefined ? thresholdMin : this.#threshold.get(index);
    const value = met === null ? objective : finite(objective - met);
    if (met !== null && !(objective > met)) return { placement: "refused", value, replaced: NONE };
    const moved = met === null ? objective : (1 - learningRate) * met + learningRate * objective;
    if (index === undefined) {
      this.#cells.intern(cell);
      this.#elite.push(solution);
      this.#threshold.push(moved);
      return { placement: "new", value, replaced: NONE };
    }
    const replaced = this.#elite.get(index);
    this.#elite.set(index, solution);
    this.#threshold.set(index, moved);
    return { placement: "improved", value, replaced };
  }

  toData(): GridData {
    return { cells: this.#cells.toArray(), elite: this.#elite.toArray(), threshold: this.#threshold.toArray() };
  }
}

function finite(value: number): number {
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));
}
