/** Asks the search for trials, has them run, tells what came of them, and keeps the ledger and the checkpoints in step. */

import type { Changes, NodeView, RolloutTrial, Visit as SearchVisit } from "../../search/index.js";
import { DEFAULTS } from "../defaults.js";
import { aborted, trialLost } from "../errors.js";
import type { LedgerEvent, RunLedger } from "../ledger/ledger.js";
import { fromWireError } from "../workers/faults.js";
import type { RolloutOutcome, Visit } from "../workers/protocol.js";
import type { CheckpointStore } from "./checkpoint-store.js";
import type { RolloutExecutor } from "./executor.js";
import type { LatencyBook } from "./latency.js";
import type { NodeTable } from "./node-table.js";
import type { SearchDriver } from "./searches.js";

export type EndReason = "steps" | "wall" | "exhausted";

export interface SchedulerParts {
  readonly driver: SearchDriver;
  readonly executor: RolloutExecutor;
  readonly ledger: RunLedger;
  readonly nodes: NodeTable;
  readonly checkpoints: CheckpointStore;
  readonly latency: LatencyBook;
  readonly inFlight: number;
  readonly wallMs: number | null;
  readonly stepTimeoutMs: number;
  readonly signal: AbortSignal;
  /** Milliseconds since the run began. */
  readonly elapsedMs: () => number;
  /** Called for each trial when it has become part of the tree, in the order of the asks. */
  readonly onMerged: (trial: number, visits: readonly Visit[]) => void;
  /** Called when a trial has been told and the changes are made. */
  readonly onTold: () => void;
}

interface Finished {
  readonly trial: RolloutTrial;
  readonly outcome: RolloutOutcome;
}

export function checkpointName(trial: number, step: number): string {
  return `${trial}.${step}`;
}

export class Scheduler {
  readonly #parts: SchedulerParts;
  /** Trials under way, and those finished that are not settled yet. */
  readonly #running = new Set<number>();
  readonly #finished: Finished[] = [];
  /** Outcomes on their way to `#finished`. */
  readonly #arrivals = new Set<Promise<void>>();
  #wake: () => void = () => {};
  /** Visits of trials that the search holds back until it is their turn. */
  readonly #held = new Map<number, readonly Visit[]>();
  #wallOver = false;

  constructor(parts: SchedulerParts) {
    this.#parts = parts;
  }

  /** Until the budget ends. Rejects with an environment's error, `TRIAL_LOST` or `ABORTED`. */
  async run(): Promise<EndReason> {
    const { driver, executor, signal, wallMs } = this.#parts;
    const onAbort = (): void => this.#wake();
    signal.addEventListener("abort", onAbort, { once: true });
    const timer = wallMs === null ? undefined : setTimeout(() => this.#endOfWall(), wallMs);
    try {
      for (;;) {
        if (signal.aborted) throw aborted(signal.reason);
        if (!this.#wallOver) this.#launch();
        if (this.#running.size === 0) break;
        const finished = this.#finished.shift();
        if (finished === undefined) await this.#somethingNew();
        else this.#settle(finished);
      }
      const { block } = driver.status();
      this.#apply(driver.finish());
      if (this.#wallOver) return "wall";
      return block === "steps" ? "steps" : "exhausted";
    } catch (error) {
      executor.abort();
      throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** After the executor is closed: drops the checkpoints of trials that finished and were not told. */
  async discardUntold(): Promise<void> {
    // A trial may have ended, and its outcome still be on its way.
    await Promise.all(this.#arrivals);
    for (const { outcome } of this.#finished) {
      if (!outcome.ok) continue;
      for (const { checkpoint } of outcome.visits) if (checkpoint !== null) this.#parts.checkpoints.discard(checkpoint);
      if (outcome.derived !== null) this.#parts.checkpoints.discard(outcome.derived);
    }
  }

  /** Until a trial has finished, or the run is aborted. */
  async #somethingNew(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = () => {};
  }

  #endOfWall(): void {
    this.#wallOver = true;
    this.#parts.executor.stop();
  }

  #launch(): void {
    const { driver, inFlight } = this.#parts;
    const free = inFlight - this.#running.size;
    if (free <= 0) return;
    const { trials, changes } = driver.ask(free);
    this.#apply(changes);
    for (const trial of trials) this.#start(trial);
  }

  #start(trial: RolloutTrial): void {
    const { driver, executor, ledger, nodes, checkpoints, elapsedMs } = this.#parts;
    const { start, pins } = nodes.plan(trial);
    ledger.event({
      kind: "trial.asked",
      elapsedMs: elapsedMs(),
      trial: trial.id,
      attempt: trial.attempt,
      checkpoint: start.checkpoint,
      body: { node: trial.from.node, steps: trial.steps, version: trial.version, replay: start.replay.length },
    });
    for (const pin of pins) checkpoints.pin(pin);
    const deadlineMs = DEFAULTS.trialOverheadMs + (trial.steps + start.replay.length + 1) * this.#parts.stepTimeoutMs;
    const { id, attempt, steps, seed, version } = trial;
    const task = { trial: id, attempt, start, steps, seed, version };
    this.#running.add(id);
    const work = executor.run({ task, knownSince: (since) => driver.knownSince(since), deadlineMs });
    const arrival = work.then((outcome) => {
      for (const pin of pins) checkpoints.unpin(pin);
      this.#finished.push({ trial, outcome });
      this.#arrivals.delete(arrival);
      this.#wake();
    });
    this.#arrivals.add(arrival);
  }

  #settle({ trial, outcome }: Finished): void {
    this.#running.delete(trial.id);
    this.#parts.latency.add(outcome.latency);
    if (outcome.ok) this.#tell(trial, outcome);
    else this.#fail(trial, outcome);
  }

  #fail(trial: RolloutTrial, outcome: Extract<RolloutOutcome, { ok: false }>): void {
    const { driver, ledger, nodes, elapsedMs } = this.#parts;
    const { code, message } = outcome.error;
    ledger.event({
      kind: "trial.failed",
      elapsedMs: elapsedMs(),
      trial: trial.id,
      attempt: trial.attempt,
      body: { fault: outcome.fault, code, message },
    });
    const error = fromWireError(outcome.error);
    if (outcome.fault === "user") throw error;
    // An executor that is being closed, without the run having been asked to end, can not happen in a correct run.
    if (outcome.fault === "aborted") throw aborted(error);
    if (trial.attempt + 1 >= DEFAULTS.attempts) throw trialLost(trial.id, trial.attempt + 1, error);
    // It may have been the checkpoint that was lost: a last attempt does without it.
    if (code.startsWith("CHECKPOINT_") || trial.attempt + 2 === DEFAULTS.attempts) nodes.distrust(trial.from.node);
    // After the end nobody would take it up again, and trials behind it wait for their turn.
    const kind = this.#wallOver ? "rejected" : "infrastructure-failure";
    this.#apply(driver.tell(trial, { kind, reason: code }));
  }

  #tell(trial: RolloutTrial, outcome: Extract<RolloutOutcome, { ok: true }>): void {
    const { driver, ledger, nodes, checkpoints, elapsedMs } = this.#parts;
    const { visits, derived, replayed } = outcome;
    const base = { elapsedMs: elapsedMs(), trial: trial.id, attempt: trial.attempt };
    const events: LedgerEvent[] = [{ ...base, kind: "trial.told", body: { steps: visits.length, replayed } }];
    if (derived !== null)
      events.push({ ...base, kind: "checkpoint.taken", checkpoint: derived.id, body: { derived: true } });
    for (const { checkpoint } of visits) {
      if (checkpoint === null) continue;
      const body = { dirtyPages: checkpoint.dirtyPages };
      events.push({ ...base, kind: "checkpoint.taken", checkpoint: checkpoint.id, body });
    }
    // Owned before anything can fail, so that the end of the run drops them in any case.
    if (derived !== null) checkpoints.derived(nodes.checkpointOf(trial.from.node), derived);
    for (const [step, { checkpoint }] of visits.entries()) {
      if (checkpoint !== null) checkpoints.add(checkpointName(trial.id, step), checkpoint);
    }
    ledger.told(trial.id, visits, events);
    nodes.recordTrial(trial);
    this.#held.set(trial.id, visits);
    this.#apply(
      driver.tell(trial, { kind: "value", visits: visits.map((visit, step) => toSearch(visit, trial, step)) }),
    );
    this.#parts.onTold();
  }

  #apply(changes: Changes): void {
    const { ledger, nodes, checkpoints, elapsedMs } = this.#parts;
    for (const node of changes.accepted) this.#accept(node);
    for (const trial of changes.merged) {
      const visits = this.#held.get(trial);
      this.#held.delete(trial);
      if (visits !== undefined) this.#parts.onMerged(trial, visits);
    }
    for (const name of changes.released) {
      const parked = checkpoints.hot(name);
      const checkpoint = parked === undefined ? {} : { checkpoint: parked.id };
      ledger.event({ kind: "checkpoint.released", elapsedMs: elapsedMs(), ...checkpoint, body: { name } });
      checkpoints.release(name);
      nodes.forget(name);
    }
  }

  #accept(node: NodeView): void {
    const { ledger, nodes, checkpoints, elapsedMs } = this.#parts;
    const visits = node.trial === null ? undefined : this.#held.get(node.trial);
    if (node.trial === null || visits === undefined) return;
    const parked = node.checkpoint === null ? undefined : checkpoints.hot(node.checkpoint);
    ledger.event({
      kind: "checkpoint.accepted",
      elapsedMs: elapsedMs(),
      trial: node.trial,
      ...(parked === undefined ? {} : { checkpoint: parked.id }),
      body: { node: node.node, cell: node.cell, length: node.length, score: node.score, name: node.checkpoint },
    });
    nodes.accept(node, visits);
  }
}

function toSearch(visit: Visit, trial: RolloutTrial, step: number): SearchVisit {
  const { action, reward, cell, terminated, score, checkpoint, landmarks } = visit;
  return {
    action,
    reward,
    cell,
    terminated,
    landmarks,
    ...(score === null ? {} : { score }),
    ...(checkpoint === null ? {} : { candidate: { checkpoint: checkpointName(trial.id, step) } }),
  };
}
