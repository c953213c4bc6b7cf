/** One connection to a daemon: many calls at once over one stream, with cancellation, deadlines and events. */

import type { Socket } from "node:net";

import { abortError, onAbort } from "../abort.js";
import type { Stages } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import { decode, encode, violation } from "./codec.js";
import { type FrameReader, frame } from "./frames.js";
import type { DaemonFrame, Welcome } from "./messages.js";
import { expectFrame, expectMessage, failureSchema, failureToError } from "./messages.js";

export interface Chunk {
  readonly stream: string;
  readonly data: Uint8Array;
}

export interface Reply {
  readonly result: unknown;
  readonly stages: Stages;
  readonly chunks: readonly Chunk[];
}

export interface CallSpec {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the daemon gives up; the client gives up a little later. */
  readonly deadlineMs?: number | undefined;
  /** Bytes of chunks that are accepted; more ends the call with `OUTPUT_LIMIT_EXCEEDED`. Default: none. */
  readonly maxChunkBytes?: number | undefined;
  /** Receives chunks as they come, and answers for what it keeps: none is collected, and `maxChunkBytes` does not count. */
  readonly onChunk?: ((chunk: Chunk) => void) | undefined;
  /**
   * Receives the result of a call that its caller has given up (aborted, out of time): what it made must be ended, since
   * nobody else knows of it.
   */
  readonly onLate?: ((reply: Reply) => void) | undefined;
}

export interface Connection {
  readonly welcome: Welcome;
  /** Calls without an answer, given up ones too: the daemon still works on them. */
  readonly inFlight: number;
  /** Why the connection can't be used any more; undefined while it can. */
  readonly ended: CoppiceError | undefined;
  call(method: string, params: object, spec?: CallSpec): Promise<Reply>;
  /** Adds listeners; there is no way to take them off, they live as long as the connection. */
  subscribe(listeners: ConnectionListeners): void;
  /** Ends the connection; calls without an answer reject with `HOST_CLOSED`. */
  close(): Promise<void>;
}

export interface ConnectionListeners {
  onEvent?(event: string, params: unknown): void;
  /** A call got its answer: less is in flight than before. */
  onReply?(): void;
  /** Once, with the reason. */
  onEnd?(reason: CoppiceError): void;
}

interface Pending {
  readonly method: string;
  readonly spec: CallSpec;
  readonly chunks: Chunk[];
  chunkBytes: number;
  /** Absent once the caller has its answer, one way or another. */
  settle: { resolve(reply: Reply): void; reject(error: CoppiceError): void; release(): void } | undefined;
}

/** Takes over a socket whose handshake is done. `rest`: the bytes that followed the handshake. */
export function createConnection(socket: Socket, reader: FrameReader, welcome: Welcome): Connection {
  return new SocketConnection(socket, reader, welcome);
}

class SocketConnection implements Connection {
  readonly welcome: Welcome;
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  readonly #pending = new Map<number, Pending>();
  readonly #listeners: ConnectionListeners[] = [];
  readonly #closed: Promise<void>;
  #lastId = 0;
  #corked = false;
  #ended: CoppiceError | undefined;

  constructor(socket: Socket, reader: FrameReader, welcome: Welcome) {
    this.welcome = welcome;
    this.#socket = socket;
    this.#reader = reader;
    this.#closed = new Promise((resolve) => {
      socket.once("close", () => resolve());
    });
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    socket.on("error", (cause) => this.#end(hostLost("Connection to the host failed", cause)));
    socket.on("close", () => this.#end(hostLost("Host closed the connection")));
    // What came in one read with the greeting is there already; not before the caller could subscribe.
    setImmediate(() => {
      this.#receive(Buffer.alloc(0));
      socket.resume();
    });
  }

  get inFlight(): number {
    return this.#pending.size;
  }

  get ended(): CoppiceError | undefined {
    return this.#ended;
  }

  async call(method: string, params: object, spec: CallSpec = {}): Promise<Reply> {
    if (this.#ended !== undefined) {
      throw this.#ended;
    }
    if (spec.signal?.aborted === true) {
      throw abortError(`Call of ${method}`, spec.signal);
    }
    const deadlineMs = spec.deadlineMs ?? DEFAULTS.connection.deadlineMs;
    this.#lastId += 1;
    const id = this.#lastId;
    // Encoding may refuse: nothing is registered before it.
    const bytes = frame(encode({ id, method, params, deadlineMs }));
    return await new Promise<Reply>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#giveUp(id, deadlineExceeded(method, deadlineMs));
      }, deadlineMs + DEFAULTS.connection.deadlineGraceMs);
      const offAbort = onAbort(spec.signal, () => this.#giveUp(id, abortError(`Call of ${method}`, spec.signal)));
      const release = (): void => {
        clearTimeout(timer);
        offAbort();
      };
      this.#pending.set(id, { method, spec, chunks: [], chunkBytes: 0, settle: { resolve, reject, release } });
      this.#write(bytes);
    });
  }

  subscribe(listeners: ConnectionListeners): void {
    this.#listeners.push(listeners);
  }

  async close(): Promise<void> {
    this.#end(hostClosed());
    await this.#closed;
  }

  /** Frames of one turn of the event loop leave in one write; the cork is drawn before the loop waits for anything. */
  #write(bytes: Buffer): void {
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(bytes);
  }

  #receive(bytes: Buffer): void {
    if (this.#ended !== undefined) {
      return;
    }
    try {
      this.#reader.push(bytes);
      for (let payload = this.#reader.next(); payload !== undefined; payload = this.#reader.next()) {
        this.#dispatch(expectFrame(decode(payload)));
      }
    } catch (error) {
      this.#end(error instanceof CoppiceError ? error : violation("Client failed to read a message", error));
    }
  }

  #dispatch(message: DaemonFrame): void {
    if ("event" in message) {
      if (message.event === "protocol.violation") {
        // The daemon's last words.
        throw failureToError(expectMessage(failureSchema, message.params, "event protocol.violation"));
      }
      for (const listener of this.#listeners) {
        listener.onEvent?.(message.event, message.params);
      }
      return;
    }
    const pending = this.#pending.get(message.id);
    if (pending === undefined) {
      throw violation(`Host answered call ${message.id}, which does not exist`);
    }
    if ("chunk" in message) {
      this.#addChunk(message.id, pending, message.chunk);
      return;
    }
    this.#pending.delete(message.id);
    this.#settle(pending, message);
    for (const listener of this.#listeners) {
      listener.onReply?.();
    }
  }

  #settle(pending: Pending, message: Exclude<DaemonFrame, { chunk: unknown } | { event: unknown }>): void {
    const { settle } = pending;
    settle?.release();
    if ("error" in message) {
      settle?.reject(failureToError(message.error));
      return;
    }
    const reply: Reply = { result: message.result, stages: message.stages ?? [], chunks: pending.chunks };
    if (settle === undefined) {
      pending.spec.onLate?.(reply);
    } else {
      settle.resolve(reply);
    }
  }

  #addChunk(id: number, pending: Pending, chunk: Chunk): void {
    if (pending.settle === undefined) {
      return;
    }
    if (pending.spec.onChunk !== undefined) {
      pending.spec.onChunk(chunk);
      return;
    }
    // Empty ones say nothing, and would pass every limit.
    if (chunk.data.length === 0) {
      return;
    }
    pending.chunkBytes += chunk.data.length;
    if (pending.chunkBytes > (pending.spec.maxChunkBytes ?? 0)) {
      this.#giveUp(id, tooMuchOutput(pending.method, pending.spec.maxChunkBytes ?? 0));
      return;
    }
    pending.chunks.push(chunk);
  }

  /** The caller gets `error` now; the daemon is told, and its answer is still awaited for what it may have made. */
  #giveUp(id: number, error: CoppiceError): void {
    const pending = this.#pending.get(id);
    const settle = pending?.settle;
    if (pending === undefined || settle === undefined) {
      return;
    }
    pending.settle = undefined;
    pending.chunks.length = 0;
    settle.release();
    this.#write(frame(encode({ cancel: id })));
    settle.reject(error);
  }

  #end(reason: CoppiceError): void {
    if (this.#ended !== undefined) {
      return;
    }
    this.#ended = reason;
    this.#socket.destroy();
    for (const pending of this.#pending.values()) {
      pending.settle?.release();
      pending.settle?.reject(reason);
    }
    this.#pending.clear();
    for (const listener of this.#listeners) {
      listener.onEnd?.(reason);
    }
  }
}

/** The host can't be reached any more. */
export function hostLost(message: string, cause?: unknown): CoppiceError {
  return new CoppiceError(message, {
    code: "HOST_LOST",
    faultDomain: "host",
    retryable: true,
    remedy: "Connect again: what the session owned is gone. `coppice host status` says whether a host runs.",
    cause,
  });
}

/** The user has closed the host. */
export function hostClosed(): CoppiceError {
  return new CoppiceError("Host handle is closed", {
    code: "HOST_CLOSED",
    faultDomain: "user",
    remedy: "Keep the host open until its last call has ended, or connect again.",
  });
}

export function deadlineExceeded(method: string, deadlineMs: number): CoppiceError {
  return new CoppiceError(`Host did not answer ${method} within ${deadlineMs} ms`, {
    code: "DEADLINE_EXCEEDED",
    faultDomain: "host",
    retryable: true,
    remedy: "Give a larger `deadlineMs`, or ask less of the host at once.",
  });
}

function tooMuchOutput(method: string, limit: number): CoppiceError {
  return new CoppiceError(`Guest sent more than the ${limit} bytes that the call of ${method} allows`, {
    code: "OUTPUT_LIMIT_EXCEEDED",
    faultDomain: "guest",
    remedy: "Ask for less, for example a part of the file, or raise the limit.",
  });
}
