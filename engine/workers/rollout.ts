/** One trial: fork, step, park what the archive may want, evaluate it in forks that are thrown away. */

import { type Checkpoint, CoppiceError, type Host, type Sandbox } from "../../sandbox-pool/index.js";
import type { ArchiveReplica, CandidateJudge } from "../../search/index.js";
import { DEFAULTS } from "../defaults.js";
import type { Environment } from "../environment.js";
import { aborted, type Place, replayMismatch } from "../errors.js";
import { digestOf, type Json } from "../json.js";
import { chooseAction, type PolicySpec } from "../policy/policy.js";
import type { Counters } from "./counters.js";
import { actionsOf, type CheckedStep, cellOf, checkScore, checkStep, landmarksOf } from "./environment-calls.js";
import { callEnvironment, InfrastructureFault, toWireError } from "./faults.js";
import type { ParkedCheckpoint, RolloutOutcome, RolloutStart, RolloutTask, Visit } from "./protocol.js";
import { Stopwatch } from "./stopwatch.js";

export interface RolloutTools {
  readonly host: Pick<Host, "checkpoints">;
  readonly environment: Environment<Json>;
  readonly policy: PolicySpec;
  readonly replica: ArchiveReplica;
  readonly keepCheckpoints: boolean;
  readonly optimiseScore: boolean;
  readonly counters: Counters;
  /** Ends the trial after the step under way; what was done counts. */
  readonly stop: AbortSignal;
  /** Ends it at once; nothing counts. */
  readonly abort: AbortSignal;
}

/** Runs one attempt of a trial. Never rejects; whatever it made and does not report is gone when it resolves. */
export async function rollOut(task: RolloutTask, tools: RolloutTools): Promise<RolloutOutcome> {
  const rollout = new Rollout(task, tools);
  try {
    return await rollout.run();
  } catch (error) {
    await rollout.discard();
    return { ok: false, fault: faultOf(error, tools.abort), error: toWireError(error), latency: rollout.latency };
  } finally {
    await rollout.closeSandboxes();
  }
}

function faultOf(error: unknown, abort: AbortSignal): "user" | "infrastructure" | "aborted" {
  if (abort.aborted) return "aborted";
  // What neither the environment nor its author caused may go well in another attempt, and is never a reward.
  return error instanceof CoppiceError && error.faultDomain === "user" ? "user" : "infrastructure";
}

/** What the trial itself wants of the host is never the environment's fault, whatever the host says. */
async function onHost<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new InfrastructureFault(error);
  }
}

interface Moment {
  readonly sandbox: Sandbox;
  readonly observation: Json;
  readonly rewardSum: number;
  /** Steps from the root. */
  readonly length: number;
}

interface Weighed {
  /** The sandbox has become this checkpoint. */
  readonly parked: Checkpoint | null;
  readonly candidate: ParkedCheckpoint | null;
  readonly score: Promise<number | null>;
}

interface StepRequest {
  readonly sandbox: Sandbox;
  readonly action: string;
  readonly previous: Json;
  /** Index in the trial; negative while the way to its start is replayed. */
  readonly step: number;
  readonly count?: "steps" | "replayed";
}

type TakenStep = CheckedStep & { readonly action: string };

class Rollout {
  readonly #task: RolloutTask;
  readonly #tools: RolloutTools;
  readonly #watch = new Stopwatch();
  readonly #live = new Set<Sandbox>();
  readonly #closing: Promise<unknown>[] = [];
  readonly #parked: Checkpoint[] = [];
  /** Made for an evaluation; not part of the result. */
  readonly #unreported: Checkpoint[] = [];
  readonly #visits: Omit<Visit, "score">[] = [];
  /** Of each visit; those of forks are found out while the trial goes on. */
  readonly #scores: Promise<number | null>[] = [];
  readonly #judge: CandidateJudge;
  #derived: ParkedCheckpoint | null = null;

  constructor(task: RolloutTask, tools: RolloutTools) {
    this.#task = task;
    this.#tools = tools;
    this.#judge = tools.replica.at(task);
  }

  get latency(): Stopwatch["samples"] {
    return this.#watch.samples;
  }

  async run(): Promise<RolloutOutcome> {
    const { start, steps } = this.#task;
    const { stop, abort } = this.#tools;
    let at: Moment = { ...(await this.#begin(start)), rewardSum: start.rewardSum, length: start.length };
    let previous: string | undefined;
    for (let step = 0; step < steps && !stop.aborted; step++) {
      const action = this.#choose(at.observation, step, previous);
      const result = await this.#step({ sandbox: at.sandbox, action, previous: at.observation, step });
      const visit = this.#describe(result, step);
      const moment = {
        sandbox: at.sandbox,
        observation: result.observation,
        rewardSum: at.rewardSum + result.reward,
        length: at.length + 1,
      };
      const over = result.terminated || result.truncated;
      const { parked, candidate, score } = over ? this.#weighEnd(moment) : await this.#weigh(moment, visit.cell);
      this.#visits.push({ ...visit, checkpoint: candidate });
      // Awaited at the end of the trial; until then a failure must not count as unhandled.
      score.catch(() => {});
      this.#scores.push(score);
      if (over || step === steps - 1) break;
      at = parked === null || stop.aborted ? moment : { ...moment, sandbox: await this.#fork(parked) };
      previous = action;
    }
    const scores = await Promise.all(this.#scores);
    if (abort.aborted) throw aborted();
    await this.#releaseUnreported();
    return {
      ok: true,
      visits: this.#visits.map((visit, index) => ({ ...visit, score: scores[index] ?? null })),
      derived: this.#derived,
      replayed: start.replay.length,
      latency: this.latency,
    };
  }

  /** Drops every checkpoint of a failed attempt. */
  async discard(): Promise<void> {
    // A score under way still forks from what would be dropped.
    await Promise.allSettled(this.#scores);
    await Promise.allSettled(this.#parked.map((checkpoint) => checkpoint.release()));
  }

  async #releaseUnreported(): Promise<void> {
    await onHost(() => Promise.all(this.#unreported.map((checkpoint) => checkpoint.release())));
  }

  async closeSandboxes(): Promise<void> {
    for (const sandbox of this.#live) this.#close(sandbox);
    await Promise.allSettled(this.#closing);
  }

  async #begin(start: RolloutStart): Promise<{ sandbox: Sandbox; observation: Json }> {
    const checkpoint = this.#tools.host.checkpoints.get(start.checkpoint, start.dirtyPages);
    let sandbox = await this.#fork(checkpoint);
    let observation = start.observation;
    if (start.replay.length === 0) return { sandbox, observation };
    for (const [index, { action, digest }] of start.replay.entries()) {
      const step = index - start.replay.length;
      ({ observation } = await this.#step({ sandbox, action, previous: observation, step, count: "replayed" }));
      if (digestOf(observation) !== digest) throw replayMismatch(start.length + step + 1, action);
    }
    const derived = await this.#park(sandbox);
    this.#derived = { id: derived.id, dirtyPages: derived.dirtyPages };
    sandbox = await this.#fork(derived);
    return { sandbox, observation };
  }

  #choose(observation: Json, step: number, previous: string | undefined): string {
    const { environment, policy } = this.#tools;
    const actions = actionsOf(environment, observation, this.#place(step));
    return chooseAction(policy, { seed: this.#task.seed, step, actions, previous });
  }

  async #step({ sandbox, action, previous, step, count = "steps" }: StepRequest): Promise<TakenStep> {
    const { environment, counters } = this.#tools;
    const place = { ...this.#place(step), action };
    const result = await this.#watch.time("step", () =>
      this.#call("step", place, sandbox, (signal) => environment.step({ sandbox, signal }, action, previous)),
    );
    counters.add(count);
    return { ...checkStep(result, place), action };
  }

  #describe(result: TakenStep, step: number): Omit<Visit, "score" | "checkpoint"> {
    const { environment } = this.#tools;
    const { action, observation, reward, terminated, truncated } = result;
    const place = { ...this.#place(step), action };
    const cell = cellOf(environment, observation, place);
    const landmarks = landmarksOf(environment, observation, place);
    return { action, observation, digest: digestOf(observation), reward, terminated, truncated, cell, landmarks };
  }

  /** Parks and evaluates the state where the archive, as it was when this trial was asked, may want it. */
  async #weigh(moment: Moment, cell: string): Promise<Weighed> {
    const { environment, optimiseScore, keepCheckpoints } = this.#tools;
    const { length, rewardSum } = moment;
    const isFree = environment.score === undefined;
    let judgement = this.#judge.judge({ cell, length, ...(isFree ? { score: rewardSum } : {}) });
    if (judgement === "pass")
      return { parked: null, candidate: null, score: Promise.resolve(isFree ? rewardSum : null) };
    const parked = await this.#park(moment.sandbox);
    const score = isFree ? Promise.resolve(rewardSum) : this.#evaluateFork(parked, moment);
    if (judgement === "need-score") judgement = this.#judge.judge({ cell, length, score: await score });
    // Where only the length counts, the score may come when it is ready, while the trial goes on.
    if (judgement === "keep") this.#judge.kept(cell, { length, score: optimiseScore ? await score : 0 });
    if (judgement !== "keep" || !keepCheckpoints) this.#unreported.push(parked);
    const candidate = judgement === "keep" && keepCheckpoints ? { id: parked.id, dirtyPages: parked.dirtyPages } : null;
    return { parked, candidate, score };
  }

  /** Nothing follows: the sandbox itself can be evaluated, and is no candidate. */
  #weighEnd(moment: Moment): Weighed {
    const { environment } = this.#tools;
    if (environment.score === undefined) {
      return { parked: null, candidate: null, score: Promise.resolve(moment.rewardSum) };
    }
    const step = moment.length - this.#task.start.length - 1;
    return { parked: null, candidate: null, score: this.#evaluate(moment.sandbox, moment.observation, step) };
  }

  async #evaluateFork(parked: Checkpoint, { observation, length }: Moment): Promise<number> {
    const sandbox = await this.#fork(parked);
    return await this.#evaluate(sandbox, observation, length - this.#task.start.length - 1);
  }

  async #evaluate(sandbox: Sandbox, observation: Json, step: number): Promise<number> {
    const { environment, counters } = this.#tools;
    const place = this.#place(step);
    const score = await this.#watch.time("score", () =>
      this.#call("score", place, sandbox, async (signal) => environment.score?.({ sandbox, signal }, observation)),
    );
    counters.add("evaluations");
    this.#close(sandbox);
    return checkScore(score, place);
  }

  async #call<T>(
    call: "step" | "score",
    place: Place,
    sandbox: Sandbox,
    body: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const timeoutMs = this.#tools.environment.stepTimeoutMs ?? DEFAULTS.stepTimeoutMs;
    return await callEnvironment({ call, place, sandbox, timeoutMs, signal: this.#tools.abort, body });
  }

  async #fork(checkpoint: Checkpoint): Promise<Sandbox> {
    if (this.#tools.abort.aborted) throw aborted();
    // Not cut short by an abort: a fork that nobody waited for would be one that nobody closes.
    const sandbox = await onHost(() => this.#patiently(() => this.#watch.time("fork", () => checkpoint.fork())));
    this.#live.add(sandbox);
    this.#tools.counters.add("forks");
    this.#tools.counters.add("live");
    return sandbox;
  }

  /** A host with too much to do may fail to hand a child out; the trial is worth a few more tries. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    for (const pauseMs of DEFAULTS.forkRetryMs) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof CoppiceError) || !error.retryable || this.#tools.abort.aborted) throw error;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
    return await work();
  }

  async #park(sandbox: Sandbox): Promise<Checkpoint> {
    const checkpoint = await this.#watch.time("park", () => onHost(() => sandbox.park()));
    this.#forget(sandbox);
    this.#parked.push(checkpoint);
    this.#tools.counters.add("parks");
    return checkpoint;
  }

  #close(sandbox: Sandbox): void {
    if (!this.#forget(sandbox)) return;
    this.#closing.push(sandbox.close());
  }

  #forget(sandbox: Sandbox): boolean {
    if (!this.#live.delete(sandbox)) return false;
    this.#tools.counters.add("live", -1);
    return true;
  }

  #place(step: number): Place {
    return { environment: this.#tools.environment.name, trial: this.#task.trial, step: step + 1 };
  }
}
