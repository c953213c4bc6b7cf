/** Where the output of a program goes that is given away as it comes: callbacks in order, the rest collected. */

import { onAbort } from "../abort.js";
import type { OutputCallback, OutputOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import type { Chunk } from "./connection.js";

export interface OutputSinkOptions {
  readonly output: { readonly [K in keyof OutputOptions]?: OutputCallback | undefined };
  /** Bytes that are kept of a stream without callback; both streams count. */
  readonly limitBytes: number;
  /** Called with the bytes that are done with, in large steps. */
  readonly grant: (bytes: number) => void;
  /** Called once, with what a callback threw, or where the guest sends more than it was granted. */
  readonly onFailure: (error: unknown) => void;
}

/** Grants are given back in parts of the window, so that few messages keep the stream going. */
const GRANT_BYTES = DEFAULTS.exec.windowBytes / 4;

/** The agent sends no larger chunk; also the most that a callback gets at once of what was sent in smaller ones. */
const CHUNK_BYTES = 64 * 1024;

/** What may wait for callbacks. An agent that keeps to its window stays below; anything above comes from a hostile guest. */
const MAX_WAITING_BYTES = DEFAULTS.exec.windowBytes + CHUNK_BYTES;

export class OutputSink {
  readonly #options: OutputSinkOptions;
  readonly #collected: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  #room: number;
  #droppedBytes = 0;
  #done = 0;
  /** Not begun by their callbacks yet. */
  #portions: Portion[] = [];
  #waitingBytes = 0;
  /** Callbacks run one after the other, whatever they wait for. */
  #giving: Promise<void> | undefined;
  #closed = false;

  constructor(options: OutputSinkOptions) {
    this.#options = options;
    this.#room = options.limitBytes;
  }

  /** Bytes of a stream without callback that found no room. */
  get droppedBytes(): number {
    return this.#droppedBytes;
  }

  take({ stream, data }: Chunk): void {
    // An honest agent sends no empty ones, and these would pass every limit.
    if (this.#closed || data.length === 0) return;
    const isStdout = stream === "stdout";
    const callback = isStdout ? this.#options.output.onStdout : this.#options.output.onStderr;
    if (callback === undefined) {
      this.#collect(isStdout ? "stdout" : "stderr", data);
      this.#finish(data.length);
      return;
    }
    this.#waitingBytes += data.length;
    if (this.#waitingBytes > MAX_WAITING_BYTES) {
      this.#fail(windowIgnored());
      return;
    }
    const last = this.#portions.at(-1);
    if (last?.callback !== callback || !last.append(data)) this.#portions.push(new Portion(callback, data));
    this.#giving ??= Promise.resolve().then(() => this.#giveAll());
  }

  collected(stream: "stdout" | "stderr"): Uint8Array {
    return Buffer.concat(this.#collected[stream]);
  }

  /** When every callback has returned, or nobody waits any more. */
  async drained(signal: AbortSignal): Promise<void> {
    let off = (): void => undefined;
    const aborted = new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      off = onAbort(signal, resolve);
    });
    await Promise.race([this.#giving, aborted]);
    off();
  }

  /** No callback is begun and nothing is granted any more. */
  close(): void {
    this.#closed = true;
    this.#portions = [];
  }

  async #giveAll(): Promise<void> {
    while (this.#portions.length > 0) {
      const portions = this.#portions;
      this.#portions = [];
      for (const { callback, bytes } of portions) {
        if (this.#closed) return;
        try {
          await callback(bytes);
        } catch (error) {
          this.#fail(error);
          return;
        }
        this.#waitingBytes -= bytes.length;
        this.#finish(bytes.length);
      }
    }
    this.#giving = undefined;
  }

  #fail(error: unknown): void {
    if (this.#closed) return;
    this.close();
    this.#options.onFailure(error);
  }

  #collect(stream: "stdout" | "stderr", data: Uint8Array): void {
    const kept = data.subarray(0, this.#room);
    this.#room -= kept.length;
    this.#droppedBytes += data.length - kept.length;
    if (kept.length > 0) this.#collected[stream].push(kept);
  }

  #finish(bytes: number): void {
    this.#done += bytes;
    if (this.#closed || this.#done < GRANT_BYTES) return;
    this.#options.grant(this.#done);
    this.#done = 0;
  }
}

/** What one callback gets at once: a program that prints byte by byte must not cost an object a byte while it waits. */
class Portion {
  readonly callback: OutputCallback;
  #buffer: Uint8Array;
  #length: number;

  constructor(callback: OutputCallback, data: Uint8Array) {
    this.callback = callback;
    this.#buffer = data;
    this.#length = data.length;
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  /** False where it would become larger than a chunk. */
  append(data: Uint8Array): boolean {
    const length = this.#length + data.length;
    if (length > CHUNK_BYTES) return false;
    if (length > this.#buffer.length) {
      const grown = new Uint8Array(Math.min(CHUNK_BYTES, 2 * length));
      grown.set(this.bytes);
      this.#buffer = grown;
    }
    this.#buffer.set(data, this.#length);
    this.#length = length;
    return true;
  }
}

function windowIgnored(): CoppiceError {
  return new CoppiceError("Guest sent more output than it was granted", {
    code: "GUEST_MISBEHAVED",
    faultDomain: "guest",
    remedy: "Close this sandbox: its guest is hostile or broken.",
  });
}
