import type {
  Asked,
  Changed,
  Changes,
  Forecast,
  NodeView,
  PathStep,
  SearchAlgorithm,
  SearchBlock,
  SearchStatus,
  Told,
} from "./algorithm.js";
import { Archive, createArchive, ROOT_CELL, ROOT_NODE } from "./archive.js";
import {
  type ArchiveBook,
  type ArchiveRecord,
  type ArchiveState,
  type ArchiveStrategy,
  isHeld,
  neededCheckpoints,
  type SerialisedArchive,
} from "./archive-state.js";
import { checkSerialised, FORMAT } from "./check-data.js";
import type { ArchiveConfig } from "./config.js";
import { checkSeed, drawSeed } from "./draws.js";
import { invalidArgument, invalidOutcome } from "./errors.js";
import { forecastStarts } from "./forecast.js";
import { mergeOutcome } from "./merge.js";
import { checkpointsOf, recordVisits } from "./record-outcome.js";
import type { ReturnWay, RolloutOutcome, RolloutTrial } from "./rollout.js";
import { bookStatus, collect, TrialBook } from "./trial-book.js";

/** A search over an archive of cells: Go-Explore and its kin. */
export interface ArchiveSearch<Options> extends SearchAlgorithm<Options, ArchiveState, RolloutTrial, RolloutOutcome> {
  serialise(state: ArchiveState): SerialisedArchive;
}

/** A search by what tells it from the others, and by how its options are checked. */
export function createArchiveSearch<Options>(
  strategy: ArchiveStrategy,
  resolve: (options: Options) => ArchiveConfig,
): ArchiveSearch<Options> {
  return new ArchiveSearchImpl(strategy, resolve);
}

interface MutableChanges {
  merged: number[];
  accepted: NodeView[];
  released: string[];
}

class ArchiveSearchImpl<Options> implements ArchiveSearch<Options> {
  readonly name: string;
  readonly #strategy: ArchiveStrategy;
  readonly #resolve: (options: Options) => ArchiveConfig;

  constructor(strategy: ArchiveStrategy, resolve: (options: Options) => ArchiveConfig) {
    this.name = strategy.name;
    this.#strategy = strategy;
    this.#resolve = resolve;
  }

  init(options: Options, seed: number): ArchiveState {
    const config = this.#resolve(options);
    return this.#state(config, checkSeed(seed), createArchive(config), new TrialBook());
  }

  ask(state: ArchiveState, count: number): Asked<ArchiveState, RolloutTrial> {
    const changes = noChanges();
    const records = collect(count, () => state.book.retry() ?? this.#issue(state, changes));
    const trials = records.map((record) => toTrial(state, record));
    this.#advance(state, changes);
    return { state, trials, changes };
  }

  tell(state: ArchiveState, trial: number, attempt: number, outcome: RolloutOutcome): Told<ArchiveState> {
    const changes = noChanges();
    const record = state.book.find(trial, attempt);
    if (record === null) {
      changes.released.push(...new Set(checkpointsOf(outcome).filter((checkpoint) => !isHeld(state, checkpoint))));
      return { state, changes, verdict: "ignored" };
    }
    if (settle(state, record, outcome) === "waiting") return { state, changes, verdict: "retry" };
    this.#advance(state, changes);
    return { state, changes, verdict: changes.merged.includes(trial) ? "merged" : "held" };
  }

  finish(state: ArchiveState): Changed<ArchiveState> {
    const changes = noChanges();
    state.book.close();
    this.#advance(state, changes);
    return { state, changes };
  }

  outstanding(state: ArchiveState): readonly RolloutTrial[] {
    return state.book.open.filter(({ phase }) => phase === "running").map((record) => toTrial(state, record));
  }

  status(state: ArchiveState): SearchStatus {
    return { ...bookStatus(state.book, this.#block(state)), steps: state.archive.steps };
  }

  best(state: ArchiveState): NodeView {
    return state.archive.view(state.archive.best);
  }

  path(state: ArchiveState, node: number): readonly PathStep[] {
    if (!Number.isInteger(node) || node < 0 || node >= state.archive.nodeCount) {
      throw invalidArgument("node", node, `a node from 0 to ${state.archive.nodeCount - 1}`);
    }
    return state.archive.path(node);
  }

  forecast(state: ArchiveState, count: number): readonly Forecast[] {
    if (!Number.isInteger(count) || count < 0) throw invalidArgument("count", count, "an integer of at least 0");
    const mayAsk = this.#cap(state) === null;
    return forecastStarts(state, count, (trial) => (mayAsk ? this.#strategy.choose(state, trial) : null));
  }

  serialise(state: ArchiveState): SerialisedArchive {
    return {
      format: FORMAT,
      algorithm: state.algorithm,
      config: structuredClone(state.config),
      seed: state.seed,
      archive: state.archive.toData(),
      book: state.book.toData(),
    };
  }

  restore(serialised: unknown): ArchiveState {
    const data = checkSerialised(serialised, this.name);
    return this.#state(data.config, data.seed, new Archive(data.config, data.archive), new TrialBook(data.book));
  }

  #state(config: ArchiveConfig, seed: number, archive: Archive, book: ArchiveBook): ArchiveState {
    const plannedSteps = book.open.reduce((sum, { steps }) => sum + steps, 0);
    const { name: algorithm } = this.#strategy;
    const needsCheckpoint = this.#strategy.needsCheckpoint && config.policyReturn === undefined;
    const held = new Set(neededCheckpoints(archive, book));
    return { algorithm, config, needsCheckpoint, seed, archive, book, held, plannedSteps };
  }

  #issue(state: ArchiveState, changes: MutableChanges): ArchiveRecord | null {
    this.#advance(state, changes);
    const { archive, book, config } = state;
    if (this.#block(state) !== null) return null;
    const start = this.#strategy.choose(state, book.asked);
    if (start === null) return null;
    const steps = Math.min(
      config.stepsPerTrial + (start.goal === undefined ? 0 : returnSteps(state, start.goal)),
      config.maxLength - archive.nodes.length.get(start.node),
      stepsLeft(state),
    );
    state.plannedSteps += steps;
    archive.hold(start.node);
    archive.cells.inFlight.add(start.cell, 1);
    archive.reweigh(start.cell);
    return book.add({ ...start, steps, version: book.merged });
  }

  /**
   * Merges what may be merged. Trial k is chosen when exactly the trials up to k - window are merged, no matter how many more
   * are known; only where nothing can be chosen are more merged, one at a time. So the tree depends on the outcomes and not on
   * when they arrive.
   */
  #advance(state: ArchiveState, changes: MutableChanges): void {
    const { book, config } = state;
    for (const { record, outcome } of book.due(config.window, () => this.#cap(state) !== null)) {
      state.plannedSteps -= record.steps;
      changes.merged.push(record.id);
      const merged = mergeOutcome(state, record, outcome);
      changes.accepted.push(...merged.accepted);
      for (const checkpoint of merged.released) state.held.delete(checkpoint);
      changes.released.push(...merged.released);
    }
  }

  #block(state: ArchiveState): SearchBlock | null {
    if (state.book.closed) return "finished";
    return this.#cap(state) ?? (state.book.open.length >= state.config.window ? "window" : null);
  }

  /** Why nothing can be chosen, apart from the window. */
  #cap(state: ArchiveState): SearchBlock | null {
    const { archive, book, config } = state;
    if (archive.nodeCount >= config.maxNodes || archive.cellCount > config.maxNodes) return "nodes";
    if (book.asked >= config.maxTrials) return "trials";
    if (stepsLeft(state) <= 0) return "steps";
    return this.#strategy.choose(state, book.asked) === null ? "nothing-to-choose" : null;
  }
}

function settle(state: ArchiveState, record: ArchiveRecord, outcome: RolloutOutcome): "waiting" | "settled" {
  const { archive, book, config } = state;
  switch (outcome.kind) {
    case "infrastructure-failure":
      return book.fail(record, config.maxAttempts) ? "waiting" : "settled";
    case "rejected":
      book.settle(record, { kind: "rejected" });
      return "settled";
    case "value": {
      const visits = recordVisits(outcome.visits, {
        steps: record.steps,
        reward: archive.nodes.reward.get(record.node),
        isHeld: (checkpoint) => isHeld(state, checkpoint),
      });
      for (const { checkpoint } of visits) if (checkpoint !== null) state.held.add(checkpoint);
      book.settle(record, { kind: "value", visits });
      return "settled";
    }
    default:
      throw invalidOutcome(
        "kind",
        (outcome as { readonly kind?: unknown }).kind,
        "value, infrastructure-failure or rejected",
      );
  }
}

function toTrial(state: ArchiveState, record: ArchiveRecord): RolloutTrial {
  const { archive, seed } = state;
  const { node, score, reward, length, checkpoint } = archive.view(record.node);
  return {
    id: record.id,
    attempt: record.attempt,
    from: {
      node,
      cell: archive.key(record.goal === undefined ? record.cell : ROOT_CELL) ?? "",
      checkpoint,
      length,
      score,
      reward,
    },
    steps: record.steps,
    ...(record.goal === undefined ? {} : { returning: wayTo(state, record.goal, record.steps) }),
    seed: drawSeed(seed, "trial", record.id),
    version: record.version,
  };
}

/** Steps that the way to a node may take. */
function returnSteps({ archive, config }: ArchiveState, goal: number): number {
  return Math.ceil((config.policyReturn?.patience ?? 1) * archive.nodes.length.get(goal));
}

function wayTo(state: ArchiveState, goal: number, steps: number): ReturnWay {
  const { archive } = state;
  const cells: string[] = [];
  for (let at = goal; at !== ROOT_NODE; at = archive.nodes.parent.get(at)) {
    const cell = archive.key(archive.nodes.cell.get(at));
    if (cell !== null) cells.push(cell);
  }
  return { cells: cells.reverse(), maxSteps: Math.min(steps, returnSteps(state, goal)) };
}

function stepsLeft(state: ArchiveState): number {
  return state.config.maxSteps - state.archive.steps - state.plannedSteps;
}

function noChanges(): MutableChanges {
  return { merged: [], accepted: [], released: [] } satisfies Changes;
}
