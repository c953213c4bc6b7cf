/** Where the output of a program goes that is given away as it comes: callbacks in order, the rest collected. */

import { onAbort } from "../abort.js";
import type { OutputCallback, OutputOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import type { Chunk } from "./connection.js";

export interface OutputSinkOptions {
  readonly output: { readonly [K in keyof OutputOptions]?: OutputCallback | undefined };
  /** Called with the bytes that are done with, in large steps. */
  readonly grant: (bytes: number) => void;
  readonly onFailure: (error: unknown) => void;
}

/** Grants are given back in parts of the window, so that few messages keep the stream going. */
const GRANT_BYTES = DEFAULTS.exec.windowBytes / 4;

export class OutputSink {
  readonly #options: OutputSinkOptions;
  readonly #collected: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  #room: number = DEFAULTS.exec.outputLimitBytes;
  #droppedBytes = 0;
  #done = 0;
  /** Callbacks run one after the other, whatever they wait for. */
  #tail: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(options: OutputSinkOptions) {
    this.#options = options;
  }

  /** Bytes of a stream without callback that found no room. */
  get droppedBytes(): number {
    return this.#droppedBytes;
  }

  take({ stream, data }: Chunk): void {
    const isStdout = stream === "stdout";
    const callback = isStdout ? this.#options.output.onStdout : this.#options.output.onStderr;
    if (callback === undefined) {
      this.#collect(isStdout ? "stdout" : "stderr", data);
      this.#finish(data.length);
      return;
    }
    this.#tail = this.#tail.then(() => this.#give(callback, data));
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
    await Promise.race([this.#tail, aborted]);
    off();
  }

  async #give(callback: OutputCallback, data: Uint8Array): Promise<void> {
    if (this.#failed) return;
    try {
      await callback(data);
    } catch (error) {
      this.#failed = true;
      this.#options.onFailure(error);
    }
    this.#finish(data.length);
  }

  #collect(stream: "stdout" | "stderr", data: Uint8Array): void {
    const kept = data.subarray(0, this.#room);
    this.#room -= kept.length;
    this.#droppedBytes += data.length - kept.length;
    if (kept.length > 0) this.#collected[stream].push(kept);
  }

  #finish(bytes: number): void {
    this.#done += bytes;
    if (this.#done < GRANT_BYTES) return;
    this.#options.grant(this.#done);
    this.#done = 0;
  }
}
