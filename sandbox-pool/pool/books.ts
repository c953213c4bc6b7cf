/** What the pool has: every child in a slot, the waiting ones on their checkpoint's shelf, and the line of who waits for room. */

import type { PoolStats, WarmPoolOptions } from "../api.js";
import type { ChildOptions, ForkSource } from "./fork-source.js";
import { Shelf } from "./shelf.js";
import { Slot, type SlotState } from "./slots.js";
import { WaitingLine } from "./waiting-line.js";

export interface PoolBooksParts {
  readonly source: ForkSource;
  readonly options: Required<WarmPoolOptions>;
  readonly now: () => number;
  /** A child is gone. */
  readonly onRoom: () => void;
}

type Wants = Pick<ChildOptions, "keepRandomness" | "isReplacement">;

export class PoolBooks {
  readonly options: Required<WarmPoolOptions>;
  readonly now: () => number;
  readonly line = new WaitingLine();
  readonly shelves = new Map<string, Shelf>();
  readonly counters = { hits: 0, misses: 0, discards: 0, staleReleases: 0, forkedAhead: 0, evicted: 0, failures: 0 };
  readonly #source: ForkSource;
  readonly #onRoom: () => void;
  readonly #slots = new Set<Slot>();
  /** Children that ended while forks ahead were under way, whose slots do not know their names yet. */
  readonly #lostEarly = new Set<string>();

  constructor(parts: PoolBooksParts) {
    this.#source = parts.source;
    this.#onRoom = parts.onRoom;
    this.options = parts.options;
    this.now = parts.now;
  }

  shelf(checkpoint: string): Shelf {
    const known = this.shelves.get(checkpoint);
    if (known !== undefined) {
      return known;
    }
    const shelf = new Shelf(checkpoint, this.options);
    this.shelves.set(checkpoint, shelf);
    return shelf;
  }

  /** Notes the demand, and takes up to `count` waiting children. */
  takeAll(checkpoint: string, count: number): readonly Slot[] {
    const shelf = this.shelf(checkpoint);
    shelf.acquired(this.now(), count);
    return shelf.ready.splice(Math.max(0, shelf.ready.length - count)).reverse();
  }

  /** The child of that name has ended; its slot, where it waits. */
  takeLost(sandbox: string): Slot | undefined {
    let isPreparing = false;
    for (const { ready, preparing } of this.shelves.values()) {
      const index = ready.findIndex((slot) => slot.sandbox === sandbox);
      if (index >= 0) {
        return ready.splice(index, 1)[0];
      }
      isPreparing ||= preparing > 0;
    }
    if (isPreparing) {
      this.#lostEarly.add(sandbox);
    }
    return undefined;
  }

  /** Whether a child had ended before the fork that made it was answered. Children of one fork are asked about in one turn. */
  hadEnded(sandbox: string): boolean {
    return this.#lostEarly.delete(sandbox);
  }

  /** A fork ahead was answered. */
  prepared(shelf: Shelf, count: number): void {
    shelf.preparing -= count;
    if ([...this.shelves.values()].every(({ preparing }) => preparing === 0)) {
      this.#lostEarly.clear();
    }
  }

  newSlot(checkpoint: string, state: "preparing" | "forking"): Slot {
    const slot = new Slot(checkpoint, state);
    this.#slots.add(slot);
    return slot;
  }

  /**
   * As many new slots as there is room for, up to `count`; for the rest, children that wait elsewhere make room. Who gives a
   * child up for each one it gets needs no room.
   */
  admit(checkpoint: string, count: number, wants: Wants = {}): readonly Slot[] {
    const room = this.line.length > 0 ? 0 : Math.max(0, this.options.maxLive - this.#slots.size);
    const admitted = Array.from({ length: wants.isReplacement === true ? count : Math.min(room, count) }, () =>
      this.newSlot(checkpoint, "forking"),
    );
    // Children that wait for the same checkpoint would have been taken, had they been of use.
    const spared = wants.keepRandomness === true ? undefined : checkpoint;
    for (let short = count - admitted.length; short > 0 && this.#evictOne(spared); short -= 1) {
      this.counters.evicted += 1;
    }
    return admitted;
  }

  /** Children that may be forked ahead now: whoever waits in line goes first. */
  roomAhead(): number {
    if (this.line.length > 0) {
      return 0;
    }
    let waiting = 0;
    for (const shelf of this.shelves.values()) {
      waiting += shelf.ready.length + shelf.preparing;
    }
    return Math.min(this.options.maxReady - waiting, this.options.maxLive - this.#slots.size);
  }

  /** Closes a child. It counts until it is really gone. A failed close is the host's to repeat when the session ends. */
  async discard(slot: Slot): Promise<void> {
    slot.move("closing");
    try {
      await this.#source.close(slot.sandbox);
    } catch {
      this.counters.failures += 1;
    } finally {
      this.remove(slot);
    }
  }

  /** The child is gone, or no longer the pool's. */
  remove(slot: Slot): void {
    slot.move("gone");
    this.#slots.delete(slot);
    if (this.#slots.size < this.options.maxLive) {
      this.line.admitNext();
    }
    this.#onRoom();
  }

  async forget(checkpoint: string): Promise<void> {
    const shelf = this.shelves.get(checkpoint);
    if (shelf !== undefined) {
      this.shelves.delete(checkpoint);
      shelf.isForgotten = true;
      await Promise.all(shelf.ready.splice(0).map((slot) => this.discard(slot)));
    }
  }

  async forgetAll(): Promise<void> {
    await Promise.all([...this.shelves.keys()].map((checkpoint) => this.forget(checkpoint)));
  }

  stats(): Omit<PoolStats, "warmMicroseconds" | "coldMicroseconds"> {
    const states = [...this.#slots].map((slot) => slot.state);
    const count = (wanted: SlotState): number => states.filter((state) => state === wanted).length;
    return {
      ...this.counters,
      live: this.#slots.size,
      ready: count("ready"),
      preparing: count("preparing"),
      leased: count("leased"),
      waiting: this.line.length,
    };
  }

  /** Closes the child that is wanted least, of another checkpoint than `spared`. */
  #evictOne(spared: string | undefined): boolean {
    const now = this.now();
    const victims = [...this.shelves.values()].filter((shelf) => shelf.ready.length > 0 && shelf.checkpoint !== spared);
    victims.sort((left, right) => left.want(now) - right.want(now));
    const slot = victims[0]?.ready.shift();
    if (slot === undefined) {
      return false;
    }
    void this.discard(slot);
    return true;
  }
}
