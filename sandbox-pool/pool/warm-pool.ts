/**
 * Children forked ahead. A fork that is made when it is asked for takes the time of creating a VM and of running the guest
 * to idle; one that waits already is only given its identity and handed out.
 *
 * Every child the pool hands out is a lease, and has one owner until the lease ends. Leases count against `maxLive`
 * whether the child was warm or not; who comes when the pool is full waits in line.
 */

import type { PoolStats, Stages, WarmPoolOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import type { ChildOptions, ForkedChild, ForkSource } from "./fork-source.js";
import { LatencySamples } from "./latency.js";
import { Shelf } from "./shelf.js";
import { Slot } from "./slots.js";
import { WaitingLine } from "./waiting-line.js";

export interface Lease {
  readonly sandbox: string;
  readonly stages: Stages;
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

type ResolvedOptions = Required<WarmPoolOptions>;

const MICROSECONDS_PER_MS = 1_000;

class ForkAheadPool implements WarmPool {
  readonly #source: ForkSource;
  readonly #options: ResolvedOptions;
  readonly #now: () => number;
  readonly #shelves = new Map<string, Shelf>();
  readonly #slots = new Set<Slot>();
  readonly #line = new WaitingLine();
  readonly #counters = { hits: 0, misses: 0, discards: 0, staleReleases: 0, forkedAhead: 0, evicted: 0, failures: 0 };
  readonly #warmLatency: LatencySamples;
  readonly #coldLatency: LatencySamples;
  #refill: Promise<void> | undefined;
  #memory = { bytes: 0, readAt: Number.NEGATIVE_INFINITY };
  #timer: NodeJS.Timeout | undefined;
  #closed: Error | undefined;

  constructor(parts: WarmPoolParts) {
    this.#source = parts.source;
    this.#options = { ...DEFAULTS.pool, ...parts.options };
    this.#now = parts.now ?? (() => performance.now());
    this.#warmLatency = new LatencySamples(this.#options.latencySamples);
    this.#coldLatency = new LatencySamples(this.#options.latencySamples);
  }

  async acquire(checkpoint: string, count: number, options: ChildOptions = {}): Promise<readonly AcquireResult[]> {
    this.#expectOpen();
    const started = this.#now();
    const shelf = this.#shelf(checkpoint);
    shelf.acquired(started, count);
    const warm = shelf.ready.splice(Math.max(0, shelf.ready.length - count)).reverse();
    const cold = count - warm.length;
    const admitted = this.#admit(checkpoint, cold);
    const request: AcquireRequest = { checkpoint, options, started };
    const results = await Promise.all([
      ...warm.map((slot) => this.#handOut(slot, request)),
      ...this.#forkCold(admitted, request),
      ...Array.from({ length: cold - admitted.length }, () => this.#waitAndFork(request)),
    ]);
    this.#wake();
    if (options.signal?.aborted === true) {
      await Promise.allSettled(results.map((result) => (result.ok ? result.lease.release() : undefined)));
      throw aborted(options.signal);
    }
    return results;
  }

  forecast(checkpoint: string, weight: number): void {
    if (this.#closed !== undefined) {
      return;
    }
    this.#shelf(checkpoint).forecast(this.#now(), weight);
    this.#wake();
  }

  async forget(checkpoint: string): Promise<void> {
    const shelf = this.#shelves.get(checkpoint);
    if (shelf === undefined) {
      return;
    }
    this.#shelves.delete(checkpoint);
    shelf.isForgotten = true;
    await Promise.all(shelf.ready.splice(0).map((slot) => this.#discard(slot)));
  }

  async drain(reason: Error = poolClosed()): Promise<void> {
    this.#closed ??= reason;
    clearInterval(this.#timer);
    this.#line.rejectAll(this.#closed);
    await Promise.all([...this.#shelves.keys()].map((checkpoint) => this.forget(checkpoint)));
    await this.#refill;
  }

  poke(): void {
    if (this.#shelves.size > 0) {
      this.#balance();
    }
  }

  stats(): PoolStats {
    const states = [...this.#slots].map((slot) => slot.state);
    const count = (...wanted: string[]): number => states.filter((state) => wanted.includes(state)).length;
    return {
      ...this.#counters,
      live: this.#slots.size,
      ready: count("ready"),
      preparing: count("preparing"),
      leased: count("leased"),
      waiting: this.#line.length,
      warmMicroseconds: this.#warmLatency.values(),
      coldMicroseconds: this.#coldLatency.values(),
    };
  }

  #expectOpen(): void {
    if (this.#closed !== undefined) {
      throw this.#closed;
    }
  }

  #shelf(checkpoint: string): Shelf {
    const known = this.#shelves.get(checkpoint);
    if (known !== undefined) {
      return known;
    }
    const shelf = new Shelf(checkpoint, this.#options);
    this.#shelves.set(checkpoint, shelf);
    return shelf;
  }

  /** Gives a waiting child away. One that fails is discarded and the next one tried; without a next one it is a miss. */
  async #handOut(first: Slot, request: AcquireRequest): Promise<AcquireResult> {
    for (let slot: Slot | undefined = first; slot !== undefined; slot = this.#takeReady(request.checkpoint)) {
      slot.move("leasing");
      try {
        const stages = await this.#source.lease(slot.sandbox, request.options);
        slot.move("leased");
        this.#counters.hits += 1;
        return { ok: true, lease: this.#leased(slot, stages, request, true) };
      } catch (error) {
        void this.#discard(slot);
        if (!mayTryNext(error, request.options)) {
          return { ok: false, error: asError(error) };
        }
        this.#counters.discards += 1;
      }
    }
    const [slot] = this.#admit(request.checkpoint, 1);
    return await (slot === undefined ? this.#waitAndFork(request) : this.#forkOne(slot, request));
  }

  #takeReady(checkpoint: string): Slot | undefined {
    return this.#shelves.get(checkpoint)?.ready.pop();
  }

  /** Forks for somebody who waits, all in one call; one promise a child. */
  #forkCold(slots: readonly Slot[], request: AcquireRequest): readonly Promise<AcquireResult>[] {
    if (slots.length === 0) {
      return [];
    }
    this.#counters.misses += slots.length;
    const answer = this.#source.fork(request.checkpoint, slots.length, request.options).catch((error: unknown) => ({
      children: slots.map((): ForkedChild => ({ ok: false, error: asError(error) })),
      stages: [],
    }));
    return slots.map(async (slot, index): Promise<AcquireResult> => {
      const { children, stages } = await answer;
      const child = children[index];
      if (child?.ok !== true) {
        this.#counters.failures += 1;
        this.#remove(slot);
        return { ok: false, error: child?.error ?? missingChild() };
      }
      slot.filled(child.sandbox);
      slot.move("leased");
      return { ok: true, lease: this.#leased(slot, stages, request, false) };
    });
  }

  async #waitAndFork(request: AcquireRequest): Promise<AcquireResult> {
    const { signal, deadlineMs = DEFAULTS.connection.deadlineMs } = request.options;
    try {
      const slot = await this.#line.wait({
        signal,
        timeoutMs: deadlineMs,
        take: () => this.#newSlot(request.checkpoint, "forking"),
        onTimeout: () => this.#exhausted(deadlineMs),
      });
      return await this.#forkOne(slot, request);
    } catch (error) {
      return { ok: false, error: asError(error) };
    }
  }

  async #forkOne(slot: Slot, request: AcquireRequest): Promise<AcquireResult> {
    const [result] = await Promise.all(this.#forkCold([slot], request));
    return result ?? { ok: false, error: missingChild() };
  }

  /** As many new slots as there is room for, up to `count`; for the rest, children that wait elsewhere make room. */
  #admit(checkpoint: string, count: number): readonly Slot[] {
    const room = this.#line.length > 0 ? 0 : Math.max(0, this.#options.maxLive - this.#slots.size);
    const admitted = Array.from({ length: Math.min(room, count) }, () => this.#newSlot(checkpoint, "forking"));
    for (let short = count - admitted.length; short > 0 && this.#evictOne(checkpoint); short -= 1) {
      this.#counters.evicted += 1;
    }
    return admitted;
  }

  /** Closes the child that is wanted least, of another checkpoint than this one. */
  #evictOne(checkpoint: string): boolean {
    const now = this.#now();
    const victims = [...this.#shelves.values()].filter(
      (shelf) => shelf.ready.length > 0 && shelf.checkpoint !== checkpoint,
    );
    victims.sort((left, right) => left.want(now) - right.want(now));
    const slot = victims[0]?.ready.shift();
    if (slot === undefined) {
      return false;
    }
    void this.#discard(slot);
    return true;
  }

  #newSlot(checkpoint: string, state: "preparing" | "forking"): Slot {
    const slot = new Slot(checkpoint, state);
    this.#slots.add(slot);
    return slot;
  }

  #leased(slot: Slot, stages: Stages, request: AcquireRequest, isWarm: boolean): Lease {
    const samples = isWarm ? this.#warmLatency : this.#coldLatency;
    samples.add((this.#now() - request.started) * MICROSECONDS_PER_MS);
    let isOver = false;
    const end = (): boolean => {
      if (isOver) {
        this.#counters.staleReleases += 1;
        return false;
      }
      isOver = true;
      return true;
    };
    return Object.freeze({
      sandbox: slot.sandbox,
      stages,
      isWarm,
      release: async (): Promise<void> => {
        if (end()) {
          await this.#discard(slot);
        }
      },
      detach: (): void => {
        if (end()) {
          this.#remove(slot);
        }
      },
    });
  }

  /** Closes a child. It counts until it is really gone. A failed close is the host's to repeat when the session ends. */
  async #discard(slot: Slot): Promise<void> {
    slot.move("closing");
    try {
      await this.#source.close(slot.sandbox);
    } catch {
      this.#counters.failures += 1;
    } finally {
      this.#remove(slot);
    }
  }

  #remove(slot: Slot): void {
    slot.move("gone");
    this.#slots.delete(slot);
    if (this.#slots.size < this.#options.maxLive) {
      this.#line.admitNext();
    }
    this.#wake();
  }

  #wake(): void {
    if (this.#closed !== undefined || this.#shelves.size === 0) {
      return;
    }
    if (this.#timer === undefined) {
      this.#timer = setInterval(() => this.#tick(), this.#options.tickMs);
      this.#timer.unref();
    }
    this.#balance();
  }

  #tick(): void {
    const now = this.#now();
    for (const shelf of this.#shelves.values()) {
      if (shelf.isIdle(now)) {
        this.#shelves.delete(shelf.checkpoint);
      }
    }
    if (this.#shelves.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.#balance();
  }

  /** Closes what nobody is expected to want, and starts a refill where one is due; one refill at a time. */
  #balance(): void {
    if (this.#closed !== undefined) {
      return;
    }
    const now = this.#now();
    for (const shelf of this.#shelves.values()) {
      for (const slot of shelf.ready.splice(0, shelf.surplus(now))) {
        this.#counters.evicted += 1;
        void this.#discard(slot);
      }
    }
    if (this.#refill !== undefined || this.#source.inFlight() > this.#options.maxInFlight) {
      return;
    }
    const shelf = this.#neediest(now);
    if (shelf !== undefined) {
      this.#refill = this.#refillShelf(shelf).finally(() => {
        this.#refill = undefined;
        this.#wake();
      });
    }
  }

  #neediest(now: number): Shelf | undefined {
    let best: Shelf | undefined;
    for (const shelf of this.#shelves.values()) {
      if (shelf.missing(now) > 0 && (best === undefined || shelf.want(now) > best.want(now))) {
        best = shelf;
      }
    }
    return this.#room() > 0 ? best : undefined;
  }

  /** Children that may still be forked ahead: whoever waits in line goes first. */
  #room(): number {
    if (this.#line.length > 0) {
      return 0;
    }
    let waiting = 0;
    for (const shelf of this.#shelves.values()) {
      waiting += shelf.ready.length + shelf.preparing;
    }
    return Math.min(this.#options.maxReady - waiting, this.#options.maxLive - this.#slots.size);
  }

  async #refillShelf(shelf: Shelf): Promise<void> {
    try {
      if (!(await this.#hasMemory())) {
        shelf.backoffUntil = this.#now() + this.#options.memoryReadingMs;
        return;
      }
      const count = Math.min(shelf.missing(this.#now()), this.#room(), this.#options.refillBatch);
      if (count > 0 && !shelf.isForgotten) {
        await this.#forkAhead(shelf, count);
      }
    } catch {
      this.#counters.failures += 1;
      shelf.backoffUntil = this.#now() + this.#options.failureBackoffMs;
    }
  }

  async #hasMemory(): Promise<boolean> {
    const now = this.#now();
    if (now - this.#memory.readAt > this.#options.memoryReadingMs) {
      this.#memory = { bytes: await this.#source.availableBytes(), readAt: now };
    }
    return this.#memory.bytes >= this.#options.minAvailableBytes;
  }

  async #forkAhead(shelf: Shelf, count: number): Promise<void> {
    const slots = Array.from({ length: count }, () => this.#newSlot(shelf.checkpoint, "preparing"));
    shelf.preparing += count;
    try {
      const children = await this.#source.forkAhead(shelf.checkpoint, count);
      for (const [index, slot] of slots.entries()) {
        this.#arrived(shelf, slot, children[index]);
      }
    } catch (error) {
      for (const slot of slots) {
        this.#remove(slot);
      }
      throw error;
    } finally {
      shelf.preparing -= count;
    }
  }

  #arrived(shelf: Shelf, slot: Slot, child: ForkedChild | undefined): void {
    if (child?.ok !== true) {
      this.#counters.failures += 1;
      shelf.backoffUntil = this.#now() + this.#options.failureBackoffMs;
      this.#remove(slot);
      return;
    }
    this.#counters.forkedAhead += 1;
    slot.filled(child.sandbox);
    if (shelf.isForgotten || this.#closed !== undefined) {
      void this.#discard(slot);
      return;
    }
    slot.move("ready");
    shelf.ready.push(slot);
  }

  #exhausted(deadlineMs: number): CoppiceError {
    return new CoppiceError(`No room for another sandbox within ${deadlineMs} ms: ${this.#options.maxLive} are alive`, {
      code: "POOL_EXHAUSTED",
      faultDomain: "host",
      retryable: true,
      remedy: "Close or park sandboxes, ask for fewer at once, or raise the pool's `maxLive`.",
    });
  }
}

interface AcquireRequest {
  readonly checkpoint: string;
  readonly options: ChildOptions;
  /** On the pool's clock. */
  readonly started: number;
}

/** Whether another child may do better: not when the caller has gone, or the host has. */
function mayTryNext(error: unknown, options: ChildOptions): boolean {
  const code = error instanceof CoppiceError ? error.code : undefined;
  const isFinal = code === "ABORTED" || code === "DEADLINE_EXCEEDED" || code === "HOST_LOST" || code === "HOST_CLOSED";
  return !isFinal && options.signal?.aborted !== true;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function missingChild(): CoppiceError {
  return new CoppiceError("Host answered a fork with fewer children than were asked for", {
    code: "PROTOCOL_VIOLATION",
    faultDomain: "bug",
  });
}

function poolClosed(): CoppiceError {
  return new CoppiceError("Warm pool is closed", {
    code: "POOL_CLOSED",
    faultDomain: "user",
    remedy: "Keep the host open until its last fork has ended.",
  });
}

function aborted(signal: AbortSignal): CoppiceError {
  return new CoppiceError("Fork was aborted", { code: "ABORTED", faultDomain: "user", cause: signal.reason });
}
