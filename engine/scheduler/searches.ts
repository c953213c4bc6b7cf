/** Search algorithms as `run` takes them; what the run itself decides is added at the start. */

import {
  type ArchiveDelta,
  type ArchiveSearch,
  type ArchiveState,
  type ArchiveSummary,
  archiveDelta,
  type Changes,
  exportTree,
  type Forecast,
  type GoExploreOptions,
  goExplore as goExploreSearch,
  type NodeView,
  type RandomRolloutsOptions,
  type RolloutOutcome,
  type RolloutTrial,
  randomRollouts as randomRolloutsSearch,
  type SearchStatus,
  summarise,
} from "../../search/index.js";
import { DEFAULTS } from "../defaults.js";
import type { Json } from "../json.js";

/** What the run decides, not the user of the search. */
type Decided = "root" | "window" | "maxAttempts" | "maxSteps";

export interface RootDescription {
  readonly cell: string;
  readonly score: number;
  readonly landmarks: Readonly<Record<string, string>>;
  /** Name of the root's checkpoint. */
  readonly checkpoint: string;
}

export interface SearchSettings {
  readonly root: RootDescription;
  readonly seed: number;
  /** Trials under way at once. */
  readonly window: number;
  readonly maxSteps: number | null;
  /** Where the user said nothing about it. */
  readonly optimiseScore: boolean;
}

/** An algorithm bound to its state. */
export interface SearchDriver {
  ask(count: number): { readonly trials: readonly RolloutTrial[]; readonly changes: Changes };
  tell(trial: RolloutTrial, outcome: RolloutOutcome): Changes;
  /** No more trials. */
  finish(): Changes;
  status(): SearchStatus;
  summary(): ArchiveSummary;
  best(): NodeView;
  /** Nodes that trials will start from next, most likely first. */
  forecast(count: number): readonly Forecast[];
  /** What a worker that knows the archive as of version `since` lacks. */
  knownSince(since: number): ArchiveDelta;
  /** Equal, byte for byte, for equal runs. */
  tree(): Json;
}

export interface SearchSpec {
  readonly name: string;
  /** As the user gave them. */
  readonly options: Json;
  /** Whether it goes back to states that it found. */
  readonly keepsCheckpoints: boolean;
  /** undefined where the user leaves it to the run. */
  readonly optimiseScore: boolean | undefined;
  start(settings: SearchSettings): SearchDriver;
}

/**
 * Go-Explore, phase 1; see `docs/search/go-explore.md`. `optimiseScore` is true by default only where the score costs nothing:
 * with a `score` function in the environment, every step in a known cell would need a fork to compare it.
 */
export function goExplore(options: Omit<GoExploreOptions, Decided> = {}): SearchSpec {
  return describe(goExploreSearch, options, true);
}

/** Trials from the root only: what a search is compared with. */
export function randomRollouts(options: Omit<RandomRolloutsOptions, Decided> = {}): SearchSpec {
  return describe(randomRolloutsSearch, options, false);
}

type UserOptions = { readonly optimiseScore?: boolean };

function describe<Options extends UserOptions>(
  search: ArchiveSearch<Options & Pick<GoExploreOptions, Decided>>,
  options: Options,
  keepsCheckpoints: boolean,
): SearchSpec {
  return Object.freeze({
    name: search.name,
    options: JSON.parse(JSON.stringify(options)) as Json,
    keepsCheckpoints,
    optimiseScore: options.optimiseScore,
    start: ({ root, seed, window, maxSteps, optimiseScore }: SearchSettings): SearchDriver => {
      const decided = { root, window, maxAttempts: DEFAULTS.attempts, ...(maxSteps === null ? {} : { maxSteps }) };
      return new ArchiveDriver(search, search.init({ optimiseScore, ...options, ...decided }, seed));
    },
  });
}

class ArchiveDriver<Options> implements SearchDriver {
  readonly #search: ArchiveSearch<Options>;
  readonly #state: ArchiveState;

  constructor(search: ArchiveSearch<Options>, state: ArchiveState) {
    this.#search = search;
    this.#state = state;
  }

  ask(count: number): { readonly trials: readonly RolloutTrial[]; readonly changes: Changes } {
    return this.#search.ask(this.#state, count);
  }

  tell(trial: RolloutTrial, outcome: RolloutOutcome): Changes {
    return this.#search.tell(this.#state, trial.id, trial.attempt, outcome).changes;
  }

  finish(): Changes {
    return this.#search.finish(this.#state).changes;
  }

  status(): SearchStatus {
    return this.#search.status(this.#state);
  }

  summary(): ArchiveSummary {
    return summarise(this.#state);
  }

  best(): NodeView {
    return this.#search.best(this.#state);
  }

  forecast(count: number): readonly Forecast[] {
    return this.#search.forecast(this.#state, count);
  }

  knownSince(since: number): ArchiveDelta {
    // Also a search that never goes back wants its new states evaluated, which takes a checkpoint.
    return { ...archiveDelta(this.#state, since), needsCheckpoint: true };
  }

  tree(): Json {
    return exportTree(this.#state) as unknown as Json;
  }
}
