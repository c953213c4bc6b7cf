import { COUNT, DataCheck } from "../data-check.js";
import type { PopulationConfig } from "./config.js";
import type { GridData } from "./elite-grid.js";
import type { RecordedSolution, SerialisedPopulation, Solution } from "./population-state.js";

export const POPULATION_FORMAT = 1;

/**
 * Whether a value can be what `serialise` returned: every index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialisedPopulation(serialised: unknown, name: string): SerialisedPopulation {
  return new PopulationCheck(name).state(serialised);
}

class PopulationCheck extends DataCheck {
  state(value: unknown): SerialisedPopulation {
    const state = this.header<SerialisedPopulation>(value, POPULATION_FORMAT);
    const { islands } = this.object<PopulationConfig>(state.config, "config");
    this.indexes([islands], { from: 1, to: 10_001 }, "config.islands");
    this.indexes([state.made], COUNT, "made");
    const kept = new Set<unknown>();
    for (const entry of this.list(state.solutions, "solutions")) {
      const { id, content, cell, objective, parent, trial } = this.object<Solution>(entry, "solutions");
      this.strings([content, cell], "solutions");
      this.numbers([objective], 1, "solutions");
      this.indexes([id, parent ?? 0, trial], COUNT, "solutions");
      kept.add(id);
    }
    const known = (ids: readonly unknown[], field: string): void => {
      if (!ids.every((id) => kept.has(id))) throw this.incompatible(`has an unknown solution at ${field}`);
    };
    if (state.best !== -1) known([state.best], "best");
    const grids = this.list(state.grids, "grids");
    if (grids.length !== islands) throw this.incompatible(`has not ${String(islands)} islands`);
    for (const grid of grids) {
      const { cells, elite, threshold } = this.object<GridData>(grid, "grids");
      const { length } = this.strings(cells, "grids.cells");
      this.numbers(threshold, length, "grids.threshold");
      this.numbers(elite, length, "grids.elite");
      known(elite as readonly number[], "grids.elite");
    }
    for (const [record, field] of this.book(state.book)) {
      this.indexes([record["island"]], { from: 0, to: islands as number }, `${field}.island`);
      known(this.list(record["inspirations"], `${field}.inspirations`), `${field}.inspirations`);
      if (record["parent"] !== null) known([record["parent"]], `${field}.parent`);
      if (record["outcome"] !== null) this.#outcome(record["outcome"], `${field}.outcome`);
    }
    return value as SerialisedPopulation;
  }

  #outcome(value: unknown, field: string): void {
    const { kind, content, objective, cell } = this.object<Record<keyof RecordedSolution, unknown>>(value, field);
    if (kind === "rejected" || kind === "lost") return;
    if (kind !== "value") throw this.incompatible(`has an unknown outcome at ${field}`);
    this.strings([content, cell], field);
    this.numbers([objective], 1, field);
  }
}
