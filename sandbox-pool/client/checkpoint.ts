/** Handle on one checkpoint. */

import type { CallOptions, Checkpoint, Delta, ForkOptions, ForkResult, Sandbox, Stages } from "../api.js";
import { CoppiceError } from "../errors.js";
import { internalError } from "../remedies.js";
import { checkInput, inputs } from "./validation.js";

export interface CheckpointFacts {
  readonly id: string;
  readonly dirtyPages: number;
  readonly dirtyBlocks?: number;
  readonly stages?: Stages;
}

/** With where forks come from, and what ends a checkpoint. */
export interface CheckpointParts extends CheckpointFacts {
  readonly fork: (checkpoint: string, count: number, options: ForkOptions) => Promise<readonly ForkResult[]>;
  readonly delta: (checkpoint: string, options: CallOptions) => Promise<Delta>;
  readonly drop: (checkpoint: string) => Promise<void>;
}

export function createCheckpoint(parts: CheckpointParts): Checkpoint {
  return new CheckpointHandle(parts);
}

class CheckpointHandle implements Checkpoint {
  readonly id: string;
  readonly dirtyPages: number;
  readonly dirtyBlocks: number;
  readonly stages: Stages;
  readonly #parts: CheckpointParts;
  #released: Promise<void> | undefined;

  constructor(parts: CheckpointParts) {
    this.id = parts.id;
    this.dirtyPages = parts.dirtyPages;
    this.dirtyBlocks = parts.dirtyBlocks ?? 0;
    this.stages = parts.stages ?? [];
    this.#parts = parts;
  }

  fork(options?: ForkOptions): Promise<Sandbox>;
  fork(count: number, options?: ForkOptions): Promise<readonly ForkResult[]>;
  async fork(first?: number | ForkOptions, second?: ForkOptions): Promise<Sandbox | readonly ForkResult[]> {
    const options = (typeof first === "number" ? second : first) ?? {};
    checkInput(inputs.forkOptions, options, "options");
    if (typeof first === "number") {
      checkInput(inputs.forkCount, first, "count");
      return await this.#fork(first, options);
    }
    const [only] = await this.#fork(1, options);
    if (only === undefined) {
      throw nothingForked();
    }
    if (!only.ok) {
      throw only.error;
    }
    return only.sandbox;
  }

  async delta(options: CallOptions = {}): Promise<Delta> {
    checkInput(inputs.callOptions, options, "options");
    return await this.#parts.delta(this.id, options);
  }

  release(): Promise<void> {
    this.#released ??= this.#parts.drop(this.id);
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  async #fork(count: number, options: ForkOptions): Promise<readonly ForkResult[]> {
    if (this.#released !== undefined) {
      throw new CoppiceError(`Checkpoint ${this.id} is released`, {
        code: "CHECKPOINT_RELEASED",
        faultDomain: "user",
        remedy: "Fork before release(), or keep the checkpoint longer.",
      });
    }
    return await this.#parts.fork(this.id, count, options);
  }
}

export function nothingForked(): CoppiceError {
  return internalError("Fork returned nothing");
}
