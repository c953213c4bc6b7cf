/** Trials on worker threads of this process. */

import { MessageChannel, type MessagePort } from "node:worker_threads";

import { Piscina } from "piscina";

import { DEFAULTS } from "../defaults.js";
import { trialLate, workerLost } from "../errors.js";
import type { ExecutorJob, RolloutExecutor } from "../scheduler/executor.js";
import { toWireError } from "./faults.js";
import type {
  Interruption,
  LeaveMessage,
  RolloutMessage,
  RolloutOutcome,
  RunContext,
  WorkerAnswer,
} from "./protocol.js";
import { NO_SAMPLES } from "./stopwatch.js";

export interface ThreadsOptions {
  readonly context: RunContext;
  readonly workers: number;
  /** Trials that wait for the host at once, over all threads. */
  readonly inFlight: number;
  /** File of the worker's entry. */
  readonly filename: string;
  /** Passed to Node in each thread. */
  readonly execArgv?: readonly string[];
}

export function createThreads(options: ThreadsOptions): RolloutExecutor {
  return new ThreadExecutor(options);
}

/**
 * One pool of a single thread for each worker, and not one pool of all: so it is known which thread gets a trial, and
 * with it which changes of the archive that thread has seen; and ending one thread leaves the others alone.
 */
class ThreadExecutor implements RolloutExecutor {
  readonly #lanes: Lane[];
  #isClosed = false;

  constructor(options: ThreadsOptions) {
    this.#lanes = Array.from({ length: options.workers }, () => new Lane(options));
  }

  async run(job: ExecutorJob): Promise<RolloutOutcome> {
    if (this.#isClosed) return failed(workerLost(new Error("the run has ended")));
    return await this.#freest().run(job);
  }

  stop(): void {
    for (const lane of this.#lanes) lane.interrupt("stop");
  }

  abort(): void {
    for (const lane of this.#lanes) lane.interrupt("abort");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#lanes.map((lane) => lane.close()));
  }

  #freest(): Lane {
    return this.#lanes.reduce((best, lane) => (lane.load < best.load ? lane : best));
  }
}

/** A thread, and the trials that run on it. */
class Lane {
  readonly #options: ThreadsOptions;
  readonly #ports = new Set<MessagePort>();
  readonly #running = new Set<Promise<unknown>>();
  #pool: Piscina<RolloutMessage | LeaveMessage, WorkerAnswer>;
  /** Version of the archive that the thread has been sent. */
  #known = 0;

  constructor(options: ThreadsOptions) {
    this.#options = options;
    this.#pool = this.#makePool();
  }

  get load(): number {
    return this.#running.size;
  }

  async run(job: ExecutorJob): Promise<RolloutOutcome> {
    const work = this.#run(job);
    this.#running.add(work);
    try {
      return await work;
    } catch (error) {
      return failed(workerLost(error));
    } finally {
      this.#running.delete(work);
    }
  }

  interrupt(interruption: Interruption): void {
    for (const port of this.#ports) port.postMessage(interruption);
  }

  async close(): Promise<void> {
    this.interrupt("abort");
    const settled = Promise.allSettled(this.#running);
    await Promise.race([settled, pause(DEFAULTS.abortGraceMs)]);
    // A thread that hangs can not leave; the session's end does it then.
    await Promise.race([this.#pool.run({ leave: true }).catch(() => undefined), pause(DEFAULTS.leaveMs)]);
    await this.#pool.destroy();
    await settled;
  }

  async #run(job: ExecutorJob): Promise<RolloutOutcome> {
    const answer = await this.#send(job);
    if ("ok" in answer) return answer;
    this.#known = 0;
    const second = await this.#send(job);
    return "ok" in second ? second : failed(workerLost(new Error("it started again in the same moment")));
  }

  async #send(job: ExecutorJob): Promise<WorkerAnswer> {
    const { port1, port2 } = new MessageChannel();
    const known = job.knownSince(this.#known);
    this.#known = known.to;
    this.#ports.add(port1);
    const message = { context: this.#options.context, task: job.task, known, port: port2 };
    const answer = this.#pool.run(message, { transferList: [port2] });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<WorkerAnswer>((resolve) => {
      timer = setTimeout(() => resolve(this.#giveUp(job, answer, port1)), job.deadlineMs);
    });
    try {
      return await Promise.race([answer, late]);
    } finally {
      clearTimeout(timer);
      this.#ports.delete(port1);
      port1.close();
    }
  }

  /** Asks a trial that is late to end; a thread that does not even do that is ended, with all that runs on it. */
  async #giveUp(job: ExecutorJob, answer: Promise<WorkerAnswer>, port: MessagePort): Promise<WorkerAnswer> {
    port.postMessage("abort" satisfies Interruption);
    const last = await Promise.race([answer.catch(() => undefined), pause(DEFAULTS.abortGraceMs)]);
    if (last !== undefined && "ok" in last && last.ok) return last;
    if (last === undefined) await this.#replacePool();
    return failed(trialLate(job.task.trial, job.deadlineMs));
  }

  async #replacePool(): Promise<void> {
    const old = this.#pool;
    this.#pool = this.#makePool();
    this.#known = 0;
    await old.destroy();
  }

  #makePool(): Piscina<RolloutMessage | LeaveMessage, WorkerAnswer> {
    const { filename, execArgv, inFlight } = this.#options;
    const pool = new Piscina<RolloutMessage | LeaveMessage, WorkerAnswer>({
      filename,
      minThreads: 1,
      maxThreads: 1,
      // A trial mostly waits for the host: one thread can carry all of them.
      concurrentTasksPerWorker: inFlight,
      // The thread's connection must be served while no trial runs.
      atomics: "disabled",
      ...(execArgv === undefined ? {} : { execArgv: [...execArgv] }),
    });
    // What ends a thread also rejects the trials that ran on it, which is where it is dealt with.
    pool.on("error", () => {});
    return pool;
  }
}

function failed(error: unknown): RolloutOutcome {
  return { ok: false, fault: "infrastructure", error: toWireError(error), latency: NO_SAMPLES };
}

function pause(milliseconds: number): Promise<undefined> {
  return new Promise((resolve) => {
    setTimeout(() => resolve(undefined), milliseconds).unref();
  });
}
