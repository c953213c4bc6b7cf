import type { BookRecord, TrialBook, TrialBookData } from "../trial-book.js";
import type { PopulationConfig } from "./config.js";
import type { EliteGrid, GridData, Placement } from "./elite-grid.js";
import type { SolutionStore } from "./solution-store.js";

/** A solution that has, or had, a cell. */
export interface Solution {
  /** Stable for the life of the search. */
  readonly id: number;
  /** What the caller calls it: a name, a checkpoint, the text itself. */
  readonly content: string;
  readonly objective: number;
  readonly cell: string;
  /** The solution that it was made from, if any, and the trial that made it. */
  readonly parent: number | null;
  readonly trial: number;
}

/** Make a new solution. */
export interface PopulationTrial {
  readonly id: number;
  /** 0, then one more each time the trial is given again after an infrastructure failure. */
  readonly attempt: number;
  readonly island: number;
  /** Vary this one; null: make one without a model. */
  readonly parent: Solution | null;
  /** Others to look at, all different. */
  readonly inspirations: readonly Solution[];
  /** Seed for everything that is drawn in this trial; the same for every attempt. */
  readonly seed: number;
}

export type PopulationOutcome =
  | {
      readonly kind: "value";
      readonly content: string;
      /** Greater is better. */
      readonly objective: number;
      /** What kind of solution it is: one elite is kept of each kind. */
      readonly cell: string;
    }
  | { readonly kind: "infrastructure-failure"; readonly reason: string }
  /** Nothing usable was made. */
  | { readonly kind: "rejected"; readonly reason: string };

export interface RecordedSolution {
  readonly kind: "value";
  readonly content: string;
  readonly objective: number;
  readonly cell: string;
}

export interface PopulationStart {
  readonly island: number;
  readonly parent: number | null;
  readonly inspirations: readonly number[];
}

export type PopulationRecord = BookRecord<PopulationStart, RecordedSolution>;

/** What became of one offered solution, by a trial or by migration. */
export interface PlacedSolution {
  readonly solution: Solution;
  readonly island: number;
  readonly placement: Placement;
  /** Objective minus the threshold that it met: what CMA-MAE ranks solutions by. */
  readonly value: number;
  readonly byMigration: boolean;
}

/** Opaque: use the functions of the search that made it. */
export interface PopulationState {
  readonly config: PopulationConfig;
  readonly seed: number;
  readonly book: TrialBook<PopulationStart, RecordedSolution>;
  readonly grids: readonly EliteGrid[];
  readonly solutions: SolutionStore;
  /** Greatest objective, then found first; -1 before the first. Kept even if its cell goes to another. */
  best: number;
}

export interface SerialisedPopulation {
  readonly format: number;
  readonly algorithm: string;
  readonly config: PopulationConfig;
  readonly seed: number;
  readonly book: TrialBookData<PopulationStart, RecordedSolution>;
  readonly grids: readonly GridData[];
  /** Those that are needed, by id. */
  readonly solutions: readonly Solution[];
  readonly made: number;
  readonly best: number;
}
