/** Cuts a byte stream into frames: a little-endian `u32` length, then that many bytes. */

import { MAX_FRAME_BYTES, violation } from "./codec.js";

const PREFIX_BYTES = 4;

/** A whole frame, ready to be written. */
export function frame(payload: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(PREFIX_BYTES + payload.length);
  bytes.writeUInt32LE(payload.length, 0);
  bytes.set(payload, PREFIX_BYTES);
  return bytes;
}

/**
 * Holds at most one incomplete frame and what followed it in the last read. A prefix over the limit is an error at once,
 * before its payload arrives.
 */
export class FrameReader {
  #pieces: Buffer[] = [];
  #length = 0;

  /** Adds bytes that arrived; they must not be changed afterwards. */
  push(bytes: Buffer): void {
    this.#pieces.push(bytes);
    this.#length += bytes.length;
  }

  /** Payload of the next complete frame; undefined where more bytes are needed. Throws `PROTOCOL_VIOLATION`. */
  next(): Buffer | undefined {
    if (this.#length < PREFIX_BYTES) {
      return undefined;
    }
    const length = this.#head(PREFIX_BYTES).readUInt32LE(0);
    if (length > MAX_FRAME_BYTES) {
      throw violation(`Frame of ${length} bytes is over the limit of ${MAX_FRAME_BYTES}`);
    }
    const end = PREFIX_BYTES + length;
    if (this.#length < end) {
      return undefined;
    }
    const head = this.#head(end);
    if (head.length === end) {
      this.#pieces.shift();
    } else {
      this.#pieces[0] = head.subarray(end);
    }
    this.#length -= end;
    return head.subarray(PREFIX_BYTES, end);
  }

  /** Whether a frame has begun and not ended. */
  get isMidFrame(): boolean {
    return this.#length > 0;
  }

  /** The first piece, joined with its followers when it holds less than `bytes`. */
  #head(bytes: number): Buffer {
    const first = this.#pieces[0];
    if (first !== undefined && first.length >= bytes) {
      return first;
    }
    const joined = Buffer.concat(this.#pieces, this.#length);
    this.#pieces = [joined];
    return joined;
  }
}
