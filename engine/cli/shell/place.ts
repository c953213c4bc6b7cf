/** One sandbox of a shell, with the terminal in it and the checkpoints that lead to it. */

import {
  type Checkpoint,
  CoppiceError,
  internalError,
  type Pty,
  type PtyExit,
  type Sandbox,
} from "../../../sandbox-pool/index.js";
import { reasonOf } from "../../errors.js";
import { Screen, type ScreenState } from "./screen.js";

/** A checkpoint that was taken in a shell. */
export interface Mark {
  readonly name: string;
  readonly checkpoint: Checkpoint;
  /** Name of the place that it was taken in. */
  readonly from: string;
  readonly screen: ScreenState;
}

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface PlaceEvents {
  /** Something was printed. */
  onOutput(place: Place, piece: Uint8Array): void;
  /** Its program has ended, or its guest has. */
  onEnd(place: Place, end: PtyExit | CoppiceError): void;
}

export interface PlaceParts {
  readonly name: string;
  readonly sandbox: Sandbox;
  /** Undefined: of the template, in which no program runs yet. */
  readonly mark: Mark | undefined;
  readonly argv: readonly string[];
  readonly term: string;
  readonly user: string | undefined;
  readonly events: PlaceEvents;
}

/** The terminal's name in every guest. */
const PTY = "coppice-shell";
/** An agent learns of a cancelled attach a moment after its client. */
const ATTACH_ATTEMPTS = 50;
const ATTACH_PAUSE_MS = 20;

export class Place {
  readonly name: string;
  readonly sandbox: Sandbox;
  readonly screen: Screen;
  /** Where `rewind` goes: the checkpoint that it came from, or the last that was taken of it. */
  mark: Mark | undefined;
  hasEnded = false;
  readonly #parts: PlaceParts;
  /** Counts attachments, so that the end of an earlier one says nothing about the present. */
  #life = 0;
  /** How an attachment ended whose life counted for nothing at that moment. */
  #missed: { readonly life: number; readonly end: PtyExit | CoppiceError } | undefined;

  constructor(parts: PlaceParts) {
    this.#parts = parts;
    this.name = parts.name;
    this.sandbox = parts.sandbox;
    this.mark = parts.mark;
    this.screen = new Screen(parts.mark?.screen);
  }

  get #pty(): Pty {
    return this.sandbox.pty(PTY);
  }

  /** Starts the program, or finds it where the checkpoint left it. */
  async begin(size: TerminalSize): Promise<void> {
    const { argv, term, user } = this.#parts;
    if (this.mark === undefined) {
      const env = { TERM: term };
      await this.sandbox.openPty(argv, { name: PTY, env, ...size, ...(user === undefined ? {} : { user }) });
    }
    this.#attach();
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (!this.hasEnded) await this.#pty.write(bytes);
  }

  async resize({ columns, rows }: TerminalSize): Promise<void> {
    if (!this.hasEnded) await this.#pty.resize(columns, rows);
  }

  /** Makes the program draw anew: it is told that the window has changed, and that it has changed back. */
  async redraw(size: TerminalSize): Promise<void> {
    await this.resize({ ...size, rows: Math.max(1, size.rows - 1) });
    await this.resize(size);
  }

  async rewind(size: TerminalSize): Promise<void> {
    // What ends now is the life before.
    const life = this.#life;
    this.#life += 1;
    const { mark } = this;
    try {
      await this.sandbox.rewind(mark === undefined ? {} : { to: mark.checkpoint });
    } catch (error) {
      this.#goOn(life);
      throw error;
    }
    this.hasEnded = false;
    this.screen.restore(mark?.screen ?? { line: new Uint8Array(), isAlternate: false });
    try {
      await this.begin(size);
    } catch (error) {
      // Nothing is attached: only another rewind helps.
      this.hasEnded = true;
      throw error;
    }
  }

  /** The life before a rewind that failed: its output is shown again, and what it missed to say is said now. */
  #goOn(life: number): void {
    this.#life = life;
    if (this.#missed?.life === life) this.#end(this.#missed.end);
  }

  async close(): Promise<void> {
    this.#life += 1;
    await this.sandbox.close();
  }

  #attach(): void {
    this.#life += 1;
    const life = this.#life;
    const ended = (end: PtyExit | CoppiceError): void => {
      if (life === this.#life) this.#end(end);
      else this.#missed = { life, end };
    };
    this.#attachUntilEnd(life).then(ended, (error: unknown) => ended(toError(error)));
  }

  async #attachUntilEnd(life: number): Promise<PtyExit> {
    const onOutput = (piece: Uint8Array): void => {
      if (life === this.#life) this.#parts.events.onOutput(this, piece);
    };
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#pty.attach({ onOutput });
      } catch (error) {
        const isTaken = error instanceof CoppiceError && error.code === "PTY_BUSY";
        const isOver = error instanceof CoppiceError && error.code === "DEADLINE_EXCEEDED";
        if (!(isTaken || isOver) || attempt === ATTACH_ATTEMPTS || life !== this.#life) throw error;
        await new Promise((resolve) => setTimeout(resolve, ATTACH_PAUSE_MS));
      }
    }
  }

  #end(end: PtyExit | CoppiceError): void {
    this.hasEnded = true;
    this.#parts.events.onEnd(this, end);
  }
}

function toError(error: unknown): CoppiceError {
  if (error instanceof CoppiceError) return error;
  return internalError(reasonOf(error), error);
}
