import type { SearchBlock, SearchStatus } from "../algorithm.js";
import { isKey } from "../config.js";
import { checkSeed, drawInteger, drawSeed } from "../draws.js";
import { invalidOutcome } from "../errors.js";
import { bookStatus, collect, TrialBook } from "../trial-book.js";
import { checkSerialisedPopulation, POPULATION_FORMAT } from "./check-data.js";
import { type MapElitesOptions, type PopulationConfig, resolveMapElites } from "./config.js";
import { EliteGrid, type GridData } from "./elite-grid.js";
import type {
  PlacedSolution,
  PopulationOutcome,
  PopulationRecord,
  PopulationState,
  PopulationTrial,
  RecordedSolution,
  SerialisedPopulation,
  Solution,
} from "./population-state.js";
import { SolutionStore } from "./solution-store.js";

const NAME = "map-elites";

export interface PopulationChanges {
  /** Trials that became part of the population, in order. */
  readonly merged: readonly number[];
  readonly placed: readonly PlacedSolution[];
  /** Solutions that the search does not need any more: refused, or replaced and no parent of a trial under way. */
  readonly released: readonly string[];
}

export interface PopulationElite extends Solution {
  readonly island: number;
  /** What the next solution of this cell has to exceed. */
  readonly threshold: number;
}

/** As for all searches; there are no steps. */
export type PopulationStatus = Omit<SearchStatus, "steps">;

/**
 * A search over solutions instead of states: each trial makes one, mostly by varying an elite, and of each kind of solution the best is
 * kept. Calls are those of `SearchAlgorithm`; trials are merged in the order of asking, as there.
 */
export interface PopulationSearch {
  readonly name: string;
  /** @throws SearchError `INVALID_ARGUMENT` naming the field. */
  init(options: MapElitesOptions, seed: number): PopulationState;
  ask(
    state: PopulationState,
    count: number,
  ): {
    readonly state: PopulationState;
    readonly trials: readonly PopulationTrial[];
    readonly changes: PopulationChanges;
  };
  /** @throws SearchError `UNKNOWN_TRIAL` or `INVALID_OUTCOME`; the state is then unchanged. */
  tell(
    state: PopulationState,
    trial: number,
    attempt: number,
    outcome: PopulationOutcome,
  ): {
    readonly state: PopulationState;
    readonly changes: PopulationChanges;
    readonly verdict: "merged" | "held" | "retry" | "ignored";
  };
  finish(state: PopulationState): { readonly state: PopulationState; readonly changes: PopulationChanges };
  outstanding(state: PopulationState): readonly PopulationTrial[];
  status(state: PopulationState): PopulationStatus;
  /** null before the first solution. */
  best(state: PopulationState): Solution | null;
  /** Island by island, cells in the order of their discovery. */
  elites(state: PopulationState): readonly PopulationElite[];
  serialise(state: PopulationState): SerialisedPopulation;
  /** @throws SearchError `INCOMPATIBLE_STATE` */
  restore(serialised: unknown): PopulationState;
}

interface MutableChanges {
  merged: number[];
  placed: PlacedSolution[];
  released: string[];
}

/**
 * MAP-Elites; with `learningRate` below 1 the archive of CMA-MAE; with `islands` several of them in a ring.
 *
 * Sources: Mouret and Clune, arXiv 1504.04909; Fontaine and Nikolaidis, "Covariance matrix adaptation MAP-annealing", arXiv 2205.10752;
 * islands: Tanese (1989).
 */
export const mapElites: PopulationSearch = Object.freeze({
  name: NAME,
  init: (options: MapElitesOptions, seed: number) => {
    const config = resolveMapElites(options);
    return create(config, checkSeed(seed), new TrialBook());
  },
  ask,
  tell,
  finish: (state: PopulationState) => {
    const changes = noChanges();
    state.book.close();
    advance(state, changes);
    return { state, changes };
  },
  outstanding: (state: PopulationState) =>
    state.book.open.filter(({ phase }) => phase === "running").map((record) => toTrial(state, record)),
  status,
  best: ({ solutions, best }: PopulationState) => (best < 0 ? null : solutions.get(best)),
  elites,
  serialise,
  restore,
});

function create(
  config: PopulationConfig,
  seed: number,
  book: PopulationState["book"],
  grids?: readonly GridData[],
): PopulationState {
  const made = Array.from({ length: config.islands }, (_, island) => new EliteGrid(config, grids?.[island]));
  return { config, seed, book, grids: made, solutions: new SolutionStore(), best: -1 };
}

function ask(state: PopulationState, count: number): ReturnType<PopulationSearch["ask"]> {
  const changes = noChanges();
  const records = collect(count, () => state.book.retry() ?? issue(state, changes));
  const trials = records.map((record) => toTrial(state, record));
  advance(state, changes);
  return { state, trials, changes };
}

function issue(state: PopulationState, changes: MutableChanges): PopulationRecord | null {
  advance(state, changes);
  const { book, config, seed, grids } = state;
  if (blockOf(state) !== null) return null;
  const trial = book.asked;
  const island = trial % config.islands;
  const grid = grids[island] as EliteGrid;
  if (grid.size === 0 || Math.floor(trial / config.islands) < config.initial)
    return book.add({ island, parent: null, inspirations: [] });
  const pick = (name: string, index: number): number => grid.elite(drawInteger(seed, grid.size, name, trial, index));
  const parent = pick("parent", 0);
  const others = Array.from({ length: config.inspirations }, (_, index) => pick("inspiration", index));
  const inspirations = [...new Set(others)].filter((other) => other !== parent);
  for (const id of [parent, ...inspirations]) state.solutions.hold(id);
  return book.add({ island, parent, inspirations });
}

function tell(
  state: PopulationState,
  trial: number,
  attempt: number,
  outcome: PopulationOutcome,
): ReturnType<PopulationSearch["tell"]> {
  const changes = noChanges();
  const record = state.book.find(trial, attempt);
  if (record === null) {
    if (outcome.kind === "value" && !state.solutions.has(outcome.content)) changes.released.push(outcome.content);
    return { state, changes, verdict: "ignored" };
  }
  if (outcome.kind === "infrastructure-failure") {
    if (state.book.fail(record, state.config.maxAttempts)) return { state, changes, verdict: "retry" };
  } else if (outcome.kind === "rejected") {
    state.book.settle(record, { kind: "rejected" });
  } else {
    const made = recordSolution(outcome);
    state.solutions.noteContent(made.content);
    state.book.settle(record, made);
  }
  advance(state, changes);
  return { state, changes, verdict: changes.merged.includes(trial) ? "merged" : "held" };
}

function recordSolution(outcome: Extract<PopulationOutcome, { kind: "value" }>): RecordedSolution {
  const { kind, content, objective, cell } = outcome;
  if (kind !== "value") throw invalidOutcome("kind", kind, "value, infrastructure-failure or rejected");
  // Contents may be long programs; whoever wants less gives a name.
  if (typeof content !== "string") throw invalidOutcome("content", content, "a string");
  if (!isKey(cell)) throw invalidOutcome("cell", cell, "a short string");
  if (!Number.isFinite(objective)) throw invalidOutcome("objective", objective, "a finite number");
  return { kind, content, objective, cell };
}

function advance(state: PopulationState, changes: MutableChanges): void {
  const { book, config } = state;
  for (const { record, outcome } of book.due(config.window, () => book.asked >= config.maxTrials)) {
    changes.merged.push(record.id);
    if (outcome.kind === "value") place(state, record, outcome, changes);
    if (config.islands > 1 && book.merged % config.migrateEvery === 0) migrate(state, changes);
    for (const id of startsOf(record)) release(changes, state.solutions.drop(id));
  }
}

function startsOf({ parent, inspirations }: Pick<PopulationRecord, "parent" | "inspirations">): number[] {
  return parent === null ? [] : [parent, ...inspirations];
}

function release(changes: MutableChanges, content: string | null): void {
  if (content !== null) changes.released.push(content);
}

function place(
  state: PopulationState,
  record: PopulationRecord,
  made: RecordedSolution,
  changes: MutableChanges,
): void {
  const { content, objective, cell } = made;
  const { solutions } = state;
  const solution: Solution = { id: solutions.made, content, objective, cell, parent: record.parent, trial: record.id };
  solutions.made += 1;
  solutions.add(solution);
  const before = state.best;
  if (before < 0 || objective > solutions.get(before).objective) {
    state.best = solution.id;
    solutions.hold(solution.id);
    if (before >= 0) release(changes, solutions.drop(before));
  }
  offer(state, { solution, island: record.island, byMigration: false }, changes);
  release(changes, solutions.sweep(solution.id));
}

function offer(
  state: PopulationState,
  { solution, island, byMigration }: Pick<PlacedSolution, "solution" | "island" | "byMigration">,
  changes: MutableChanges,
): void {
  const grid = state.grids[island] as EliteGrid;
  const { placement, value, replaced } = grid.offer(solution.cell, solution.id, solution.objective);
  changes.placed.push({ solution, island, placement, value, byMigration });
  if (placement === "refused") return;
  state.solutions.hold(solution.id);
  if (replaced >= 0) release(changes, state.solutions.drop(replaced));
}

/** The best of each island, as they were before anybody moved, are offered to the next island of the ring. */
function migrate(state: PopulationState, changes: MutableChanges): void {
  const { grids, config, solutions } = state;
  const leaving = grids.map((grid) => {
    const elites = Array.from({ length: grid.size }, (_, index) => solutions.get(grid.elite(index)));
    const count = Math.ceil(config.migrationRate * elites.length);
    return elites.sort((one, two) => two.objective - one.objective || one.id - two.id).slice(0, count);
  });
  // Held meanwhile: one may lose its own cell before it is its turn to be offered.
  for (const { id } of leaving.flat()) solutions.hold(id);
  for (const [island, travellers] of leaving.entries()) {
    for (const solution of travellers)
      offer(state, { solution, island: (island + 1) % config.islands, byMigration: true }, changes);
  }
  for (const { id } of leaving.flat()) release(changes, solutions.drop(id));
}

function blockOf({ book, config }: PopulationState): SearchBlock | null {
  if (book.closed) return "finished";
  if (book.asked >= config.maxTrials) return "trials";
  return book.open.length >= config.window ? "window" : null;
}

function status(state: PopulationState): PopulationStatus {
  return bookStatus(state.book, blockOf(state));
}

function elites({ grids, solutions }: PopulationState): PopulationElite[] {
  return grids.flatMap((grid, island) =>
    Array.from({ length: grid.size }, (_, index) => {
      return { ...solutions.get(grid.elite(index)), island, threshold: grid.threshold(index) };
    }),
  );
}

function toTrial({ solutions, seed }: PopulationState, record: PopulationRecord): PopulationTrial {
  const { id, attempt, island, parent, inspirations } = record;
  return {
    id,
    attempt,
    island,
    parent: parent === null ? null : { ...solutions.get(parent) },
    inspirations: inspirations.map((other) => ({ ...solutions.get(other) })),
    seed: drawSeed(seed, "trial", id),
  };
}

function serialise({ config, seed, book, grids, solutions, best }: PopulationState): SerialisedPopulation {
  return {
    format: POPULATION_FORMAT,
    algorithm: NAME,
    config: { ...config },
    seed,
    book: book.toData(),
    grids: grids.map((grid) => grid.toData()),
    solutions: solutions.toData(),
    made: solutions.made,
    best,
  };
}

function restore(serialised: unknown): PopulationState {
  const data = checkSerialisedPopulation(serialised, NAME);
  const state = create(data.config, data.seed, new TrialBook(data.book), data.grids);
  const { solutions, book, grids } = state;
  solutions.made = data.made;
  state.best = data.best;
  for (const solution of data.solutions) {
    solutions.noteContent(solution.content);
    solutions.add({ ...solution });
  }
  if (state.best >= 0) solutions.hold(state.best);
  for (const grid of grids) for (let index = 0; index < grid.size; index += 1) solutions.hold(grid.elite(index));
  for (const record of book.open) {
    for (const id of startsOf(record)) solutions.hold(id);
    if (record.outcome?.kind === "value") solutions.noteContent(record.outcome.content);
  }
  return state;
}

function noChanges(): MutableChanges {
  return { merged: [], placed: [], released: [] };
}
