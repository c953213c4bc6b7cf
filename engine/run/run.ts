/** A run: search + environment + policy + budget + seed. */

import { randomUUID } from "node:crypto";

import type { Host, Template } from "../../sandbox-pool/index.js";
import type { ArchiveSummary, NodeView } from "../../search/index.js";
import { DEFAULTS } from "../defaults.js";
import type { Environment } from "../environment.js";
import { aborted } from "../errors.js";
import type { Json } from "../json.js";
import { type Ledger, openLedger, type RunLedger } from "../ledger/ledger.js";
import { CheckpointStore } from "../scheduler/checkpoint-store.js";
import { Eviction } from "../scheduler/eviction.js";
import type { RolloutExecutor } from "../scheduler/executor.js";
import { LatencyBook, type LatencySummary } from "../scheduler/latency.js";
import { NodeTable, ROOT_CHECKPOINT, type TrajectoryStep } from "../scheduler/node-table.js";
import { type EndReason, Scheduler } from "../scheduler/scheduler.js";
import type { SearchDriver } from "../scheduler/searches.js";
import { Counters } from "../workers/counters.js";
import type { RunContext, TimedOperation } from "../workers/protocol.js";
import { loadEnvironment, moduleDigest } from "./environment-module.js";
import { type ResolvedOptions, type RunOptions, recordedOptions, resolveOptions } from "./options.js";
import type { CheckpointCounts } from "./progress.js";
import { Reporter } from "./reporter.js";
import { makeRoot, makeTemplate, type Root } from "./set-up.js";

/** What `run` needs of the outside, so that it can be run over stand-ins. */
export interface RunEnvironment {
  readonly connectHost: (options: { readonly signal: AbortSignal }) => Promise<Host>;
  readonly createExecutor: (options: {
    readonly context: RunContext;
    readonly workers: number;
    readonly inFlight: number;
  }) => RolloutExecutor;
  /** Wall clock, for the ledger's header. */
  readonly now: () => number;
}

export interface BestFound {
  readonly node: number;
  readonly cell: string | null;
  readonly score: number;
  readonly depth: number;
  /** What the reset showed. */
  readonly root: Json;
  /** From the root to the node. */
  readonly trajectory: readonly TrajectoryStep[];
}

export interface RunResult {
  readonly best: BestFound;
  /** The search as plain data: equal, byte for byte as JSON, for equal seeds. */
  readonly tree: Json;
  readonly summary: ArchiveSummary;
  readonly ended: EndReason;
  readonly spent: {
    readonly steps: number;
    readonly trials: number;
    /** Steps taken again because a checkpoint had been evicted. */
    readonly replayedSteps: number;
    readonly forks: number;
    /** From the first trial to the last. */
    readonly searchMs: number;
    /** With set-up. */
    readonly wallMs: number;
  };
  readonly checkpoints: CheckpointCounts;
  /** In the run itself, with other work around it. */
  readonly latency: Readonly<Record<TimedOperation, LatencySummary>>;
  readonly seed: number;
}

/** Rejects with a `CoppiceError`; whatever it made on the host is gone when it settles. */
export async function runWith(outside: RunEnvironment, options: RunOptions): Promise<RunResult> {
  const resolved = resolveOptions(options);
  const signal = options.signal ?? new AbortController().signal;
  if (signal.aborted) throw aborted(signal.reason);
  const [environment, digest] = await Promise.all([
    loadEnvironment(resolved.environment),
    moduleDigest(resolved.environment),
  ]);
  using ledger = openLedger(options.ledger);
  const host = options.host ?? (await outside.connectHost({ signal }));
  try {
    const run = new Run({ outside, options, resolved, environment, digest, ledger, host, signal });
    return await run.run();
  } finally {
    if (options.host === undefined) await host.close();
  }
}

interface RunParts {
  readonly outside: RunEnvironment;
  readonly options: RunOptions;
  readonly resolved: ResolvedOptions;
  readonly environment: Environment<Json>;
  readonly digest: string;
  readonly ledger: Ledger;
  readonly host: Host;
  readonly signal: AbortSignal;
}

class Run {
  readonly #parts: RunParts;
  readonly #begin = performance.now();
  readonly #counters = new Counters();
  readonly #latency = new LatencyBook();
  readonly #checkpoints: CheckpointStore;

  constructor(parts: RunParts) {
    this.#parts = parts;
    this.#checkpoints = new CheckpointStore(parts.host);
  }

  async run(): Promise<RunResult> {
    const { outside, resolved, environment, digest, ledger } = this.#parts;
    const record = ledger.begin({
      startedAtMs: outside.now(),
      environment: environment.name,
      environmentDigest: digest,
      search: resolved.search.name,
      seed: resolved.seed,
      options: recordedOptions(resolved),
    });
    try {
      const result = await this.#search(record);
      record.event({ kind: "run.ended", elapsedMs: this.#elapsedMs(), body: { reason: result.ended } });
      return result;
    } catch (error) {
      const reason = this.#parts.signal.aborted ? "aborted" : "failed";
      const body = { reason, message: error instanceof Error ? error.message : String(error) };
      record.event({ kind: "run.ended", elapsedMs: this.#elapsedMs(), body });
      throw this.#parts.signal.aborted ? aborted(error) : error;
    } finally {
      await this.#checkpoints.releaseAll();
    }
  }

  async #search(record: RunLedger): Promise<RunResult> {
    const { resolved, environment } = this.#parts;
    const { root } = await this.#setUp(record);
    this.#checkpoints.add(ROOT_CHECKPOINT, root.checkpoint);
    const driver = this.#startSearch(root);
    const nodes = new NodeTable(record, this.#checkpoints, root);
    const executor = this.#startExecutor();
    const { options, signal, host } = this.#parts;
    const [counters, checkpoints, latency] = [this.#counters, this.#checkpoints, this.#latency];
    const reporter = new Reporter({ driver, nodes, counters, checkpoints, budget: resolved.budget, options });
    const eviction = new Eviction({ host, driver, checkpoints, limit: resolved.hotCheckpoints });
    const scheduler = new Scheduler({
      driver,
      executor,
      ledger: record,
      nodes,
      checkpoints,
      latency,
      inFlight: resolved.inFlight,
      wallMs: resolved.budget.wallMs,
      stepTimeoutMs: environment.stepTimeoutMs ?? DEFAULTS.stepTimeoutMs,
      signal,
      elapsedMs: () => this.#elapsedMs(),
      onMerged: (trial, visits) => reporter.merged(trial, visits),
      onTold: () => eviction.check(),
    });
    reporter.start();
    const begin = performance.now();
    try {
      const ended = await scheduler.run();
      reporter.last();
      return this.#result({ driver, nodes, ended, root, searchMs: performance.now() - begin });
    } finally {
      reporter.stop();
      await executor.close();
      await scheduler.discardUntold();
    }
  }

  async #setUp(record: RunLedger): Promise<{ template: Template; root: Root }> {
    const { host, environment, digest, resolved, signal, options } = this.#parts;
    const onProgress = options.onSetUp ?? ((): void => {});
    const parts = { host, environment, digest, seed: resolved.seed, signal, onProgress };
    const template = await makeTemplate(parts);
    record.event({ kind: "template.ready", elapsedMs: this.#elapsedMs(), checkpoint: template.id });
    const root = await makeRoot(template, parts);
    const { cell, score, observation, landmarks, checkpoint } = root;
    const body = { cell, score, observation, landmarks };
    record.event({ kind: "root.ready", elapsedMs: this.#elapsedMs(), checkpoint: checkpoint.id, body });
    return { template, root };
  }

  #startSearch({ cell, score, landmarks }: Root): SearchDriver {
    const { resolved } = this.#parts;
    return resolved.search.start({
      root: { cell, score, landmarks, checkpoint: ROOT_CHECKPOINT },
      seed: resolved.seed,
      window: resolved.inFlight,
      maxSteps: resolved.budget.steps,
      optimiseScore: this.#optimiseScore(),
    });
  }

  #startExecutor(): RolloutExecutor {
    const { outside, host, resolved } = this.#parts;
    const context: RunContext = {
      id: randomUUID(),
      address: host.address,
      environment: resolved.environment.href,
      policy: resolved.policy,
      keepCheckpoints: resolved.search.keepsCheckpoints,
      optimiseScore: this.#optimiseScore(),
      counters: this.#counters.buffer,
    };
    return outside.createExecutor({ context, workers: resolved.workers, inFlight: resolved.inFlight });
  }

  /** Where the score takes a fork, comparing it in every known cell would cost more than it brings. */
  #optimiseScore(): boolean {
    const { resolved, environment } = this.#parts;
    return resolved.search.optimiseScore ?? environment.score === undefined;
  }

  #result(parts: {
    readonly driver: SearchDriver;
    readonly nodes: NodeTable;
    readonly ended: EndReason;
    readonly root: Root;
    readonly searchMs: number;
  }): RunResult {
    const { driver, nodes, ended, root, searchMs } = parts;
    const best: NodeView = driver.best();
    const summary = driver.summary();
    const { replayed, forks } = this.#counters.read();
    const operations: TimedOperation[] = ["fork", "park", "step", "score"];
    return {
      best: {
        node: best.node,
        cell: best.cell,
        score: best.score,
        depth: best.length,
        root: root.observation,
        trajectory: nodes.trajectory(best.node),
      },
      tree: driver.tree(),
      summary,
      ended,
      spent: {
        steps: summary.steps,
        trials: summary.trials,
        replayedSteps: replayed,
        forks,
        searchMs,
        wallMs: this.#elapsedMs(),
      },
      checkpoints: this.#checkpoints.counts,
      latency: Object.fromEntries(
        operations.map((name) => [name, this.#latency.summary(name)]),
      ) as RunResult["latency"],
      seed: this.#parts.resolved.seed,
    };
  }

  #elapsedMs(): number {
    return performance.now() - this.#begin;
  }
}
