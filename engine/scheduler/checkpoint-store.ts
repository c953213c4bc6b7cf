/**
 * Which checkpoints the run holds on the host. The search knows them by name; the host's ids change when one is derived
 * again. A checkpoint goes when the search has released it and no trial under way needs it (invariant 9).
 */

import type { Host } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import type { CheckpointCounts } from "../run/progress.js";
import type { ParkedCheckpoint } from "../workers/protocol.js";

interface Held {
  readonly name: string;
  /** undefined while evicted. */
  parked: ParkedCheckpoint | undefined;
  /** Trials under way that start here. */
  pins: number;
  released: boolean;
}

export class CheckpointStore {
  readonly #host: Pick<Host, "checkpoints">;
  readonly #held = new Map<string, Held>();
  readonly #dropping = new Set<Promise<void>>();
  #taken = 0;
  #pruned = 0;
  #evicted = 0;
  #hot = 0;

  constructor(host: Pick<Host, "checkpoints">) {
    this.#host = host;
  }

  get counts(): CheckpointCounts {
    return { taken: this.#taken, pruned: this.#pruned, evicted: this.#evicted, hot: this.#hot };
  }

  /** Hot ones that could be evicted, oldest first. */
  get evictable(): readonly string[] {
    const names: string[] = [];
    for (const held of this.#held.values()) {
      if (held.parked !== undefined && held.pins === 0 && !held.released) names.push(held.name);
    }
    return names;
  }

  add(name: string, parked: ParkedCheckpoint): void {
    if (this.#held.has(name)) throw new Error(`checkpoint name '${name}' is taken`);
    this.#held.set(name, { name, parked, pins: 0, released: false });
    this.#taken++;
    this.#hot++;
  }

  hot(name: string): ParkedCheckpoint | undefined {
    return this.#held.get(name)?.parked;
  }

  /** A second checkpoint of the same state, made because the first was evicted or lost. */
  derived(name: string, parked: ParkedCheckpoint): void {
    this.#taken++;
    const held = this.#held.get(name);
    if (held === undefined || held.released || held.parked !== undefined) {
      this.#pruned++;
      this.#drop(parked);
      return;
    }
    held.parked = parked;
    this.#hot++;
  }

  pin(name: string): void {
    const held = this.#held.get(name);
    if (held !== undefined) held.pins++;
  }

  unpin(name: string): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    held.pins--;
    if (held.released) this.#remove(held);
  }

  /** Nothing can reach it any more. Twice is a no-op. */
  release(name: string): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    held.released = true;
    this.#remove(held);
  }

  /** Gives up the hot form, which a replay can bring back. */
  evict(name: string): void {
    const held = this.#held.get(name);
    if (held?.parked === undefined || held.pins > 0) return;
    this.#evicted++;
    this.#cool(held);
  }

  /** The host has lost it: the next use derives it again. */
  lost(name: string): void {
    const held = this.#held.get(name);
    if (held?.parked === undefined) return;
    this.#evicted++;
    this.#cool(held);
  }

  /** Drops one that never became part of the run. */
  discard(parked: ParkedCheckpoint): void {
    this.#drop(parked);
  }

  /** Drops all that is left, and waits until the host has done it, or hangs. Counts stay as they were. */
  async releaseAll(): Promise<void> {
    for (const held of this.#held.values()) if (held.parked !== undefined) this.#drop(held.parked);
    this.#held.clear();
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, DEFAULTS.releaseMs);
    });
    await Promise.race([Promise.allSettled(this.#dropping), limit]);
    clearTimeout(timer);
  }

  #remove(held: Held): void {
    if (held.pins > 0) return;
    this.#held.delete(held.name);
    if (held.parked === undefined) return;
    this.#pruned++;
    this.#cool(held);
  }

  #cool(held: Held): void {
    if (held.parked === undefined) return;
    this.#drop(held.parked);
    held.parked = undefined;
    this.#hot--;
  }

  #drop({ id, dirtyPages }: ParkedCheckpoint): void {
    // A drop that fails means that the host or the session is gone, and with it the checkpoint.
    const done = this.#host.checkpoints
      .get(id, dirtyPages)
      .release()
      .catch(() => {})
      .finally(() => this.#dropping.delete(done));
    this.#dropping.add(done);
  }
}
