/** What the pool knows of one checkpoint: the children that wait, and how many should. */

import { Decaying } from "./decaying.js";
import type { Slot } from "./slots.js";

export interface ShelfLimits {
  readonly demandHalfLifeMs: number;
  readonly demandPerChild: number;
  readonly maxReadyPerCheckpoint: number;
  readonly lowWatermark: number;
  readonly highWatermark: number;
}

/** Below this a shelf is as good as forgotten. */
const FADED = 0.05;

export class Shelf {
  readonly checkpoint: string;
  /** Handed out from the end: what was forked last has its pages warmest in the host's caches. */
  readonly ready: Slot[] = [];
  preparing = 0;
  /** No fork ahead before this time: the last one failed. */
  backoffUntil = 0;
  /** The checkpoint was dropped: whatever still arrives is closed. */
  isForgotten = false;
  readonly #limits: ShelfLimits;
  readonly #demand: Decaying;
  readonly #forecast: Decaying;
  #isRefilling = false;

  constructor(checkpoint: string, limits: ShelfLimits) {
    this.checkpoint = checkpoint;
    this.#limits = limits;
    this.#demand = new Decaying(limits.demandHalfLifeMs);
    this.#forecast = new Decaying(limits.demandHalfLifeMs);
  }

  /** How much a child here is wanted, to compare shelves. */
  want(now: number): number {
    return this.#demand.value(now) + this.#forecast.value(now);
  }

  acquired(now: number, count: number): void {
    this.#demand.add(now, count);
    this.#forecast.add(now, -count);
  }

  forecast(now: number, weight: number): void {
    this.#forecast.set(now, weight);
  }

  /** How many children should wait. */
  target(now: number): number {
    // A forecast counts as long as its bigger half is left; demand has to be there more than once.
    const forecast = Math.round(this.#forecast.value(now));
    const demand = Math.floor(this.#demand.value(now) / this.#limits.demandPerChild);
    return Math.min(this.#limits.maxReadyPerCheckpoint, Math.max(forecast, demand));
  }

  /** Children to fork ahead now: none until the low watermark is passed, then up to the target. */
  missing(now: number): number {
    const target = this.target(now);
    const have = this.ready.length + this.preparing;
    if (have >= target || now < this.backoffUntil) {
      this.#isRefilling = false;
      return 0;
    }
    this.#isRefilling ||= have < target * this.#limits.lowWatermark;
    return this.#isRefilling ? target - have : 0;
  }

  /** Waiting children that nobody is expected to ask for. */
  surplus(now: number): number {
    return Math.max(0, this.ready.length - Math.ceil(this.target(now) * this.#limits.highWatermark));
  }

  isIdle(now: number): boolean {
    return this.ready.length === 0 && this.preparing === 0 && this.want(now) < FADED && now >= this.backoffUntil;
  }
}
