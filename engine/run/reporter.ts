/** Tells the caller how the run goes: what each step showed, and now and then the figures. */

import { DEFAULTS } from "../defaults.js";
import type { Json } from "../json.js";
import type { CheckpointStore } from "../scheduler/checkpoint-store.js";
import type { NodeTable } from "../scheduler/node-table.js";
import type { SearchDriver } from "../scheduler/searches.js";
import type { Counters } from "../workers/counters.js";
import type { Visit } from "../workers/protocol.js";
import type { ResolvedOptions, RunOptions } from "./options.js";
import type { Progress } from "./progress.js";

export interface ReporterParts {
  readonly driver: SearchDriver;
  readonly nodes: NodeTable;
  readonly counters: Counters;
  readonly checkpoints: CheckpointStore;
  readonly budget: ResolvedOptions["budget"];
  readonly options: Pick<RunOptions, "onProgress" | "onVisit">;
}

/** Rates are those of the last few seconds, so that the display follows what happens now. */
const RATE_WINDOW_MS = 5_000;

interface Sample {
  readonly at: number;
  readonly steps: number;
  readonly forks: number;
}

export class Reporter {
  readonly #parts: ReporterParts;
  readonly #begin = performance.now();
  #samples: Sample[] = [];
  #order = 0;
  #best: { readonly node: number; readonly observation: Json } | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: ReporterParts) {
    this.#parts = parts;
    this.#samples = [{ at: 0, steps: 0, forks: 0 }];
  }

  start(): void {
    if (this.#parts.options.onProgress === undefined) return;
    this.#timer = setInterval(() => this.#report(), DEFAULTS.progressMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  last(): void {
    this.#report();
  }

  merged(trial: number, visits: readonly Visit[]): void {
    const { onVisit } = this.#parts.options;
    let from = this.#parts.nodes.landmarksAtStart(trial);
    for (const [step, visit] of visits.entries()) {
      const { action, observation, cell, landmarks, reward, terminated } = visit;
      onVisit?.({ trial, step, order: this.#order++, action, observation, cell, from, landmarks, reward, terminated });
      from = landmarks;
    }
  }

  #report(): void {
    const { onProgress } = this.#parts.options;
    if (onProgress === undefined) return;
    onProgress(this.#progress());
  }

  #progress(): Progress {
    const { driver, counters, checkpoints, budget } = this.#parts;
    const { cells, bestScore, depth, landmarks, trials } = driver.summary();
    const { steps, forks, live } = counters.read();
    const elapsedMs = performance.now() - this.#begin;
    const { stepsPerSecond, forksPerSecond } = this.#rates({ at: elapsedMs, steps, forks });
    const best = driver.best();
    return {
      cells,
      bestScore,
      depth,
      landmarks,
      trials,
      steps,
      stepsPerSecond,
      forks,
      forksPerSecond,
      sandboxes: live,
      checkpoints: checkpoints.counts,
      elapsedMs,
      remainingMs: remaining(budget, { elapsedMs, steps, stepsPerSecond }),
      bestObservation: this.#observationOf(best.node),
    };
  }

  /** Kept, because for a node that nothing starts from any more it is read from the ledger. */
  #observationOf(node: number): Json {
    if (this.#best?.node !== node) this.#best = { node, observation: this.#parts.nodes.observationOf(node) };
    return this.#best.observation;
  }

  #rates(now: Sample): { readonly stepsPerSecond: number; readonly forksPerSecond: number } {
    this.#samples.push(now);
    while (this.#samples.length > 2 && (this.#samples[1]?.at ?? now.at) <= now.at - RATE_WINDOW_MS)
      this.#samples.shift();
    const first = this.#samples[0] ?? now;
    const seconds = Math.max(now.at - first.at, 1) / 1_000;
    return {
      stepsPerSecond: (now.steps - first.steps) / seconds,
      forksPerSecond: (now.forks - first.forks) / seconds,
    };
  }
}

function remaining(
  budget: ResolvedOptions["budget"],
  now: { readonly elapsedMs: number; readonly steps: number; readonly stepsPerSecond: number },
): number | null {
  const limits: number[] = [];
  if (budget.wallMs !== null) limits.push(Math.max(0, budget.wallMs - now.elapsedMs));
  if (budget.steps !== null && now.stepsPerSecond > 0) {
    limits.push((Math.max(0, budget.steps - now.steps) / now.stepsPerSecond) * 1_000);
  }
  return limits.length === 0 ? null : Math.min(...limits);
}
