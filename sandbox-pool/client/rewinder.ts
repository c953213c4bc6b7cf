/** Rewinds: in place or by another life, whichever has taken less time. */

import type { ForkOptions, RewindHow, RewindOptions } from "../api.js";
import { CoppiceError } from "../errors.js";
import { RewindCosts } from "../pool/rewind-costs.js";
import type { WarmPool } from "../pool/warm-pool.js";
import { nothingForked } from "./checkpoint.js";
import { type Life, toLife } from "./life.js";
import { results } from "./messages.js";
import type { Session } from "./session.js";

export interface RewindRequest {
  readonly checkpoint: string;
  readonly life: Life;
  /** The life goes on, and nothing is known against it. */
  readonly isUsable: boolean;
  readonly prefer: NonNullable<RewindOptions["prefer"]>;
  readonly options: ForkOptions;
}

export interface Rewound {
  /** With the id of the life before where that has gone back. */
  readonly life: Life;
  readonly how: RewindHow;
  readonly dirtyPages?: number;
}

export interface Rewinder {
  /** Throws `LifeLost` where the life before is gone and there is no other. */
  rewind(request: RewindRequest): Promise<Rewound>;
  /** The checkpoint is dropped. */
  forget(checkpoint: string): void;
}

/** A rewind failed on its way, and took the sandbox with it. */
export class LifeLost extends Error {
  override readonly cause: CoppiceError;

  constructor(cause: CoppiceError) {
    super(cause.message);
    this.cause = cause;
  }
}

export interface RewinderParts {
  readonly session: Session;
  readonly pool: WarmPool;
  /** Checkpoints that were rewound to; lives that begin from now on note what they write. */
  readonly rewound: Set<string>;
}

export function createRewinder(parts: RewinderParts): Rewinder {
  return new MeasuringRewinder(parts);
}

const MICROSECONDS_PER_MS = 1_000;

class MeasuringRewinder implements Rewinder {
  readonly #parts: RewinderParts;
  readonly #costs = new RewindCosts();

  constructor(parts: RewinderParts) {
    this.#parts = parts;
  }

  async rewind(request: RewindRequest): Promise<Rewound> {
    const { checkpoint } = request;
    const started = performance.now();
    const took = (): number => (performance.now() - started) * MICROSECONDS_PER_MS;
    const back = this.#choose(request) === "in-place" ? await this.#inPlace(request) : undefined;
    this.#parts.rewound.add(checkpoint);
    if (back !== undefined) {
      this.#costs.note(checkpoint, "in-place", took());
      return back;
    }
    const begun = performance.now();
    const { life, how } = await this.#fork(request);
    const note = (): void => {
      this.#costs.note(checkpoint, how, (performance.now() - begun) * MICROSECONDS_PER_MS);
    };
    // One that can't go on says so at its first use.
    life.begun === undefined ? note() : life.begun.then(note, () => {});
    return { life, how };
  }

  forget(checkpoint: string): void {
    this.#parts.rewound.delete(checkpoint);
    this.#costs.forget(checkpoint);
  }

  #choose({ checkpoint, life, isUsable, prefer, options }: RewindRequest): RewindHow {
    const isWarm = this.#parts.pool.ready(checkpoint) > 0 && options.keepRandomness !== true;
    const fork = isWarm ? "warm-fork" : "cold-fork";
    const mayGoBack = isUsable && life.origin === checkpoint && this.#parts.rewound.has(checkpoint);
    if (!mayGoBack || prefer === "fork") return fork;
    return prefer === "in-place" ? "in-place" : this.#costs.choose(checkpoint, ["in-place", fork]);
  }

  /** Undefined where another life has to do. */
  async #inPlace({ life, options }: RewindRequest): Promise<Rewound | undefined> {
    const { keepRandomness, ...spec } = options;
    const { session } = this.#parts;
    try {
      const { result, stages } = await session.request({
        method: "sandbox.rewind",
        params: { sandbox: life.id, keepRandomness },
        schema: results.rewind,
        spec,
      });
      return { life: { ...life, stages, begun: undefined }, how: "in-place", dirtyPages: result.dirtyPages };
    } catch (error) {
      if (!(error instanceof CoppiceError)) throw error;
      const isGivenUp = error.code === "ABORTED" || error.code === "DEADLINE_EXCEEDED";
      // How far it came nobody knows, and the host keeps nothing of which nobody knows that.
      if (isGivenUp || session.connection.ended !== undefined) throw new LifeLost(error);
      return undefined;
    }
  }

  async #fork({ checkpoint, life, options }: RewindRequest): Promise<Rewound> {
    const isReplacement = life.onGone !== undefined;
    const [result] = await this.#parts.pool.acquire(checkpoint, 1, { ...options, isReplacement });
    if (result?.ok !== true) throw result?.error ?? nothingForked();
    return { life: toLife(checkpoint, result.lease), how: result.lease.isWarm ? "warm-fork" : "cold-fork" };
  }
}
