/** One child in the pool's books, from before it exists until after it is gone. */

import { internalError } from "../remedies.js";

/**
 * - `preparing`: being forked ahead.
 * - `forking`: being forked for somebody who waits.
 * - `ready`: run to idle, waits on the shelf.
 * - `leased`: has an owner.
 * - `closing`: being closed; still counts as live.
 * - `gone`: final.
 */
export type SlotState = "preparing" | "forking" | "ready" | "leased" | "closing" | "gone";

const TRANSITIONS: Readonly<Record<SlotState, readonly SlotState[]>> = {
  preparing: ["ready", "closing", "gone"],
  forking: ["leased", "closing", "gone"],
  ready: ["leased", "closing"],
  leased: ["closing", "gone"],
  closing: ["gone"],
  gone: [],
};

export class Slot {
  readonly checkpoint: string;
  #state: SlotState;
  #sandbox: string | undefined;

  constructor(checkpoint: string, state: "preparing" | "forking") {
    this.checkpoint = checkpoint;
    this.#state = state;
  }

  get state(): SlotState {
    return this.#state;
  }

  /** Throws `INTERNAL` before the sandbox exists. */
  get sandbox(): string {
    if (this.#sandbox === undefined) {
      throw internalError("Pool slot has no sandbox yet");
    }
    return this.#sandbox;
  }

  /** The fork has answered. */
  filled(sandbox: string): void {
    this.#sandbox = sandbox;
  }

  /** Throws `INTERNAL` for a move that the table does not have. */
  move(to: SlotState): void {
    if (!TRANSITIONS[this.#state].includes(to)) {
      throw internalError(`Pool slot can't go from ${this.#state} to ${to}`);
    }
    this.#state = to;
  }
}
