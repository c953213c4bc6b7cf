/**
 * Children forked ahead. A fork that is made when it is asked for takes the time of creating a VM and of running the guest
 * to idle; one that waits already is only given its identity and handed out.
 *
 * Every child the pool hands out is a lease, and has one owner until the lease ends. Leases count against `maxLive`
 * whether the child was warm or not; who comes when the pool is full waits in line.
 */

import { abortError } from "../abort.js";
import type { PoolStats, Stages, WarmPoolOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import { REPORT } from "../remedies.js";
import { PoolBooks } from "./books.js";
import type { ChildOptions, ForkedChild, ForkSource } from "./fork-source.js";
import { LatencySamples } from "./latency.js";
import { Refiller } from "./refiller.js";
import type { Slot } from "./slots.js";

export interface Lease {
  readonly sandbox: string;
  /** Of the fork; of a child that had waited `begun` gives them. */
  readonly stages: Stages;
  /**
   * Of a child that had waited: when the host has said that it runs. Nobody need wait for that: what it is asked goes behind
   * the hand-out, and where that fails, the child says nothing and this rejects.
   */
  readonly begun?: Promise<Stages>;
  /** Whether the child had waited. */
  readonly isWarm: boolean;
  /** Closes the child. Late or twice it does nothing, and is counted. */
  release(): Promise<void>;
  /** The owner has ended the child by other means: closed it, or made it a checkpoint. Counted as `release` is. */
  detach(): void;
}

export type AcquireResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly error: Error };

export interface WarmPool {
  /**
   * `count` children of a checkpoint, one result a child. An abort rejects it and leaves no child behind; a child that can't
   * be had within the deadline gives `POOL_EXHAUSTED` in its place.
   */
  acquire(checkpoint: string, count: number, options?: ChildOptions): Promise<readonly AcquireResult[]>;
  /** How many children of the checkpoint will soon be asked for; replaces the last forecast, and fades like demand. */
  forecast(checkpoint: string, weight: number): void;
  /** Children that wait for a fork of the checkpoint. */
  ready(checkpoint: string): number;
  /** A child has ended: where it waits it is not handed out any more. */
  lost(sandbox: string): void;
  /** The checkpoint is dropped: its waiting children are closed. Leases go on. */
  forget(checkpoint: string): Promise<void>;
  /** Ends the pool: waiting children are closed, whoever waits or comes gets `reason`, else `POOL_CLOSED`. Leases go on. */
  drain(reason?: Error): Promise<void>;
  /** The host has less to do than before: a good moment to fork ahead. */
  poke(): void;
  stats(): PoolStats;
}

export interface WarmPoolParts {
  readonly source: ForkSource;
  readonly options?: WarmPoolOptions;
  /** Milliseconds on a clock that never goes back. Default: `performance.now`. */
  readonly now?: () => number;
}

export function createWarmPool(parts: WarmPoolParts): WarmPool {
  return new ForkAheadPool(parts);
}

const MICROSECONDS_PER_MS = 1_000;

class ForkAheadPool implements WarmPool {
  readonly #source: ForkSource;
  readonly #books: PoolBooks;
  readonly #refiller: Refiller;
  readonly #warmLatency: LatencySamples;
  readonly #coldLatency: LatencySamples;
  #closed: Error | undefined;

  constructor(parts: WarmPoolParts) {
    const options = withDefaults(parts.options ?? {});
    this.#source = parts.source;
    this.#books = new PoolBooks({
      source: parts.source,
      options,
      now: parts.now ?? (() => performance.now()),
      onRoom: () => this.#refiller.wake(),
    });
    this.#refiller = new Refiller(parts.source, this.#books);
    this.#warmLatency = new LatencySamples(options.latencySamples);
    this.#coldLatency = new LatencySamples(options.latencySamples);
  }

  async acquire(checkpoint: string, count: number, options: ChildOptions = {}): Promise<readonly AcquireResult[]> {
    if (this.#closed !== undefined) {
      throw this.#closed;
    }
    const started = this.#books.now();
    // What waits has been reseeded: no child for who wants the checkpoint's randomness.
    const mayBeWarm = this.#forksAhead && options.keepRandomness !== true;
    const warm = mayBeWarm ? this.#books.takeAll(checkpoint, count) : [];
    const cold = count - warm.length;
    const admitted = this.#books.admit(checkpoint, cold, options);
    const request: AcquireRequest = { checkpoint, options, started };
    const results = await Promise.all([
      ...warm.map((slot): AcquireResult => ({ ok: true, lease: this.#handOut(slot, request) })),
      ...this.#forkCold(admitted, request),
      ...Array.from({ length: cold - admitted.length }, () => this.#waitAndFork(request)),
    ]);
    this.#refiller.wake();
    if (options.signal?.aborted === true) {
      await Promise.allSettled(results.map((result) => (result.ok ? result.lease.release() : undefined)));
      throw abortError("Fork", options.signal);
    }
    return results;
  }

  forecast(checkpoint: string, weight: number): void {
    if (this.#closed === undefined && this.#forksAhead) {
      this.#books.shelf(checkpoint).forecast(this.#books.now(), weight);
      this.#refiller.wake();
    }
  }

  ready(checkpoint: string): number {
    return this.#books.shelves.get(checkpoint)?.ready.length ?? 0;
  }

  lost(sandbox: string): void {
    const slot = this.#books.takeLost(sandbox);
    if (slot !== undefined) {
      this.#books.counters.discards += 1;
      void this.#books.discard(slot);
    }
  }

  async forget(checkpoint: string): Promise<void> {
    await this.#books.forget(checkpoint);
  }

  async drain(reason: Error = poolClosed()): Promise<void> {
    this.#closed ??= reason;
    this.#books.line.rejectAll(this.#closed);
    await Promise.all([this.#books.forgetAll(), this.#refiller.stop()]);
  }

  /** Without it nothing is kept of checkpoints: most of them are forked once. */
  get #forksAhead(): boolean {
    return this.#books.options.maxReady > 0;
  }

  poke(): void {
    this.#refiller.wake();
  }

  stats(): PoolStats {
    return {
      ...this.#books.stats(),
      warmMicroseconds: this.#warmLatency.values(),
      coldMicroseconds: this.#coldLatency.values(),
    };
  }

  /** Gives a waiting child away, at once: see `Lease.begun`. */
  #handOut(slot: Slot, request: AcquireRequest): Lease {
    slot.move("leased");
    const { counters } = this.#books;
    const begun = this.#source.lease(slot.sandbox);
    begun.catch(() => {
      counters.discards += 1;
    });
    this.#refiller.handedOut();
    counters.hits += 1;
    return this.#leased(slot, { stages: [], begun }, request);
  }

  /** Forks for somebody who waits, all in one call; one promise a child. */
  #forkCold(slots: readonly Slot[], request: AcquireRequest): readonly Promise<AcquireResult>[] {
    if (slots.length === 0) {
      return [];
    }
    const { counters } = this.#books;
    counters.misses += slots.length;
    const answer = this.#source
      .fork(request.checkpoint, slots.length, request.options)
      .catch((error: unknown) => slots.map((): ForkedChild => ({ ok: false, error: asError(error) })));
    return slots.map(async (slot, index): Promise<AcquireResult> => {
      const children = await answer;
      const child = children[index];
      if (child?.ok !== true) {
        counters.failures += 1;
        this.#books.remove(slot);
        return { ok: false, error: child?.error ?? missingChild() };
      }
      slot.filled(child.sandbox);
      slot.move("leased");
      return { ok: true, lease: this.#leased(slot, { stages: child.stages }, request) };
    });
  }

  async #forkOne(slot: Slot, request: AcquireRequest): Promise<AcquireResult> {
    const [result] = await Promise.all(this.#forkCold([slot], request));
    return result ?? { ok: false, error: missingChild() };
  }

  async #waitAndFork(request: AcquireRequest): Promise<AcquireResult> {
    const { signal, deadlineMs = DEFAULTS.connection.deadlineMs } = request.options;
    try {
      const slot = await this.#books.line.wait({
        signal,
        timeoutMs: deadlineMs,
        take: () => this.#books.newSlot(request.checkpoint, "forking"),
        onTimeout: () => exhausted(deadlineMs, this.#books.options.maxLive),
      });
      return await this.#forkOne(slot, request);
    } catch (error) {
      return { ok: false, error: asError(error) };
    }
  }

  #leased(slot: Slot, life: Pick<Lease, "stages" | "begun">, request: AcquireRequest): Lease {
    const isWarm = life.begun !== undefined;
    const samples = isWarm ? this.#warmLatency : this.#coldLatency;
    samples.add((this.#books.now() - request.started) * MICROSECONDS_PER_MS);
    let isOver = false;
    const end = (): boolean => {
      if (isOver) {
        this.#books.counters.staleReleases += 1;
        return false;
      }
      isOver = true;
      return true;
    };
    return Object.freeze({
      sandbox: slot.sandbox,
      ...life,
      isWarm,
      release: async (): Promise<void> => {
        if (end()) {
          await this.#books.discard(slot);
        }
      },
      detach: (): void => {
        if (end()) {
          this.#books.remove(slot);
        }
      },
    });
  }
}

interface AcquireRequest {
  readonly checkpoint: string;
  readonly options: ChildOptions;
  /** On the pool's clock. */
  readonly started: number;
}

/** An option that is given as undefined is not given. */
function withDefaults(options: WarmPoolOptions): Required<WarmPoolOptions> {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...DEFAULTS.pool, ...Object.fromEntries(given) };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function missingChild(): CoppiceError {
  return new CoppiceError("Host answered a fork with fewer children than were asked for", {
    code: "PROTOCOL_VIOLATION",
    faultDomain: "bug",
    remedy: REPORT,
  });
}

function poolClosed(): CoppiceError {
  return new CoppiceError("Warm pool is closed", {
    code: "POOL_CLOSED",
    faultDomain: "user",
    remedy: "Keep the host open until its last fork has ended.",
  });
}

function exhausted(deadlineMs: number, maxLive: number): CoppiceError {
  return new CoppiceError(`No room for another sandbox within ${deadlineMs} ms: ${maxLive} are alive`, {
    code: "POOL_EXHAUSTED",
    faultDomain: "host",
    retryable: true,
    remedy: "Close or park sandboxes, ask for fewer at once, or raise the pool's `maxLive`.",
  });
}
