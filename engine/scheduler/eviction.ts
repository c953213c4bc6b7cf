/** Keeps the host's memory: which hot checkpoints are given up when it gets short. They come back by replay. */

import type { Host } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import type { CheckpointStore } from "./checkpoint-store.js";
import { ROOT_CHECKPOINT } from "./node-table.js";
import type { SearchDriver } from "./searches.js";

export interface EvictionParts {
  readonly host: Pick<Host, "stats">;
  readonly driver: Pick<SearchDriver, "forecast">;
  readonly checkpoints: CheckpointStore;
  /** Hot checkpoints at most. */
  readonly limit: number;
}

export class Eviction {
  readonly #parts: EvictionParts;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #looking = false;

  constructor(parts: EvictionParts) {
    this.#parts = parts;
  }

  /** After each trial; cheap where there is nothing to do. */
  check(): void {
    const { checkpoints, limit } = this.#parts;
    const { hot } = checkpoints.counts;
    if (hot > limit) this.#evict(hot - limit + this.#share(hot));
    const now = performance.now();
    if (this.#looking || now - this.#lookedAt < DEFAULTS.memoryCheckMs) return;
    this.#lookedAt = now;
    this.#looking = true;
    this.#look().finally(() => {
      this.#looking = false;
    });
  }

  async #look(): Promise<void> {
    try {
      const { memory } = await this.#parts.host.stats();
      const isShort = memory.availableBytes < memory.totalBytes * DEFAULTS.memoryLowWater;
      if (isShort) this.#evict(this.#share(this.#parts.checkpoints.counts.hot));
    } catch {
      // A host that can not say how it is will fail the next trial, where it is dealt with.
    }
  }

  #share(hot: number): number {
    return Math.max(1, Math.floor(hot * DEFAULTS.evictionShare));
  }

  /** Least likely to be started from first; the root, from which all can be derived, never. */
  #evict(count: number): void {
    const { driver, checkpoints } = this.#parts;
    const candidates = checkpoints.evictable.filter((name) => name !== ROOT_CHECKPOINT);
    const likely = driver.forecast(candidates.length).flatMap(({ checkpoint }) => checkpoint ?? []);
    const rank = new Map(likely.map((name, index) => [name, index]));
    const byUse = candidates.toSorted((a, b) => (rank.get(b) ?? Infinity) - (rank.get(a) ?? Infinity) || 0);
    for (const name of byUse.slice(0, count)) checkpoints.evict(name);
  }
}
