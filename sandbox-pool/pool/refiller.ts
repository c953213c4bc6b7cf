/** Forks ahead what will be wanted, and closes what will not; never while the host has better things to do. */

import type { PoolBooks } from "./books.js";
import type { ForkedChild, ForkSource } from "./fork-source.js";
import type { Shelf } from "./shelf.js";
import type { Slot } from "./slots.js";

export class Refiller {
  readonly #source: ForkSource;
  readonly #books: PoolBooks;
  #refill: Promise<void> | undefined;
  #memory = { bytes: 0, readAt: Number.NEGATIVE_INFINITY };
  #timer: NodeJS.Timeout | undefined;
  #pause: NodeJS.Timeout | undefined;
  #isScheduled = false;
  #isStopped = false;

  constructor(source: ForkSource, books: PoolBooks) {
    this.#source = source;
    this.#books = books;
  }

  /** Something has changed. Looks at it once for all that happens in this turn of the event loop, after the callers went on. */
  wake(): void {
    if (this.#isScheduled || this.#isStopped || this.#books.shelves.size === 0) {
      return;
    }
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#timer ??= setInterval(() => this.#tick(), this.#books.options.tickMs).unref();
      this.#balance();
    });
  }

  /** A child is given away: whoever has it now comes first. Many hand-outs in a row put a refill off once, not for ever. */
  handedOut(): void {
    if (this.#pause !== undefined || this.#refill !== undefined || this.#isScheduled || this.#isStopped) {
      return;
    }
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.wake();
    }, this.#books.options.refillDelayMs).unref();
  }

  /** Resolves when nothing is being forked ahead any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#pause);
    clearInterval(this.#timer);
    await this.#refill;
  }

  /** Decay makes no event: it is looked at from time to time, as long as there is something to decay. */
  #tick(): void {
    const { shelves } = this.#books;
    const now = this.#books.now();
    for (const shelf of shelves.values()) {
      if (shelf.isIdle(now)) {
        shelves.delete(shelf.checkpoint);
      }
    }
    if (shelves.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.#balance();
  }

  /** Closes what nobody is expected to want, and starts a refill where one is due; one refill at a time. */
  #balance(): void {
    if (this.#isStopped) {
      return;
    }
    const { shelves, counters, options } = this.#books;
    const now = this.#books.now();
    for (const shelf of shelves.values()) {
      for (const slot of shelf.ready.splice(0, shelf.surplus(now))) {
        counters.evicted += 1;
        void this.#books.discard(slot);
      }
    }
    if (this.#refill !== undefined || this.#pause !== undefined || this.#source.inFlight() > options.maxInFlight) {
      return;
    }
    const shelf = this.#neediest(now);
    if (shelf !== undefined) {
      this.#refill = this.#refillShelf(shelf).finally(() => {
        this.#refill = undefined;
        this.wake();
      });
    }
  }

  #neediest(now: number): Shelf | undefined {
    let best: Shelf | undefined;
    for (const shelf of this.#books.shelves.values()) {
      if (shelf.missing(now) > 0 && (best === undefined || shelf.want(now) > best.want(now))) {
        best = shelf;
      }
    }
    return this.#books.roomAhead() > 0 ? best : undefined;
  }

  async #refillShelf(shelf: Shelf): Promise<void> {
    const { counters, options } = this.#books;
    try {
      if (!(await this.#hasMemory())) {
        shelf.backoffUntil = this.#books.now() + options.memoryReadingMs;
        return;
      }
      const count = Math.min(shelf.missing(this.#books.now()), this.#books.roomAhead(), options.refillBatch);
      if (count > 0 && !shelf.isForgotten && !this.#isStopped) {
        await this.#forkAhead(shelf, count);
      }
    } catch {
      counters.failures += 1;
      shelf.backoffUntil = this.#books.now() + options.failureBackoffMs;
    }
  }

  async #hasMemory(): Promise<boolean> {
    const { options } = this.#books;
    const now = this.#books.now();
    if (now - this.#memory.readAt > options.memoryReadingMs) {
      this.#memory = { bytes: await this.#source.availableBytes(), readAt: now };
    }
    return this.#memory.bytes >= options.minAvailableBytes;
  }

  async #forkAhead(shelf: Shelf, count: number): Promise<void> {
    const slots = Array.from({ length: count }, () => this.#books.newSlot(shelf.checkpoint, "preparing"));
    shelf.preparing += count;
    try {
      const children = await this.#source.forkAhead(shelf.checkpoint, count);
      for (const [index, slot] of slots.entries()) {
        this.#arrived(shelf, slot, children[index]);
      }
    } catch (error) {
      for (const slot of slots) {
        this.#books.remove(slot);
      }
      throw error;
    } finally {
      this.#books.prepared(shelf, count);
    }
  }

  #arrived(shelf: Shelf, slot: Slot, child: ForkedChild | undefined): void {
    if (child?.ok !== true) {
      this.#books.counters.failures += 1;
      shelf.backoffUntil = this.#books.now() + this.#books.options.failureBackoffMs;
      this.#books.remove(slot);
      return;
    }
    this.#books.counters.forkedAhead += 1;
    slot.filled(child.sandbox);
    const hasEnded = this.#books.hadEnded(child.sandbox);
    if (hasEnded) {
      this.#books.counters.discards += 1;
    }
    if (hasEnded || shelf.isForgotten || this.#isStopped) {
      void this.#books.discard(slot);
      return;
    }
    slot.move("ready");
    shelf.ready.push(slot);
  }
}
