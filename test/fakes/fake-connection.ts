/** One client of the fake daemon: frames in and out, cancellation, deadlines. */

import type { Socket } from "node:net";

import { decode, encode } from "../../sandbox-pool/client/codec.js";
import { FrameReader, frame } from "../../sandbox-pool/client/frames.js";
import { CLIENT_PROTOCOL } from "../../sandbox-pool/client/messages.js";
import { type FakeFailure, failureOf } from "./fake-faults.js";
import { FakeAgentError } from "./fake-guest.js";
import { FakeDaemonError } from "./fake-host-state.js";

export interface FakeRequest {
  readonly id: number;
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly session: string;
  readonly signal: AbortSignal;
  emit(stream: string, data: Uint8Array): void;
  drop(): void;
}

/** What the connection needs of the daemon. */
export interface FakeDaemonSide {
  /** Session to join or a new one; throws `FakeDaemonError` to refuse. */
  enter(connection: FakeConnection, session: string | undefined): string;
  leave(connection: FakeConnection, session: string): void;
  handle(request: FakeRequest): Promise<unknown>;
}

interface Hello {
  readonly protocol: number;
  readonly session?: string;
}

interface ClientRequest {
  readonly id: number;
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly deadlineMs: number;
}

export class FakeConnection {
  readonly #socket: Socket;
  readonly #daemon: FakeDaemonSide;
  readonly #reader = new FrameReader();
  readonly #running = new Map<number, AbortController>();
  #session: string | undefined;

  constructor(socket: Socket, daemon: FakeDaemonSide) {
    this.#socket = socket;
    this.#daemon = daemon;
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    // Clients that vanish are the ordinary case here.
    socket.on("error", () => undefined);
    socket.on("close", () => this.#left());
  }

  get session(): string | undefined {
    return this.#session;
  }

  send(message: object): void {
    if (!this.#socket.destroyed) {
      this.#socket.write(frame(encode(message)));
    }
  }

  /** Bytes as they are, also such as no daemon would send. */
  sendRaw(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  drop(): void {
    this.#socket.destroy();
  }

  #receive(bytes: Buffer): void {
    this.#reader.push(bytes);
    for (let payload = this.#reader.next(); payload !== undefined; payload = this.#reader.next()) {
      const message = decode(payload);
      if (this.#session === undefined) {
        this.#greet(message as Hello);
      } else if ("cancel" in (message as object)) {
        this.#running.get((message as { cancel: number }).cancel)?.abort(aborted());
      } else {
        void this.#run(message as ClientRequest, this.#session);
      }
    }
  }

  #greet(hello: Hello): void {
    try {
      if (hello.protocol !== CLIENT_PROTOCOL) {
        const message = `Daemon speaks protocol ${CLIENT_PROTOCOL}`;
        throw new FakeDaemonError({ code: "PROTOCOL_MISMATCH", message, faultDomain: "user", retryable: false });
      }
      this.#session = this.#daemon.enter(this, hello.session);
      const welcome = { protocol: CLIENT_PROTOCOL, version: "fake", session: this.#session, hostKind: "kvm" };
      this.send({ welcome });
    } catch (error) {
      this.send({ refused: toFailure(error) });
      this.#socket.end();
    }
  }

  async #run(request: ClientRequest, session: string): Promise<void> {
    const { id } = request;
    const controller = new AbortController();
    this.#running.set(id, controller);
    const timer = setTimeout(() => controller.abort(outOfTime(request)), request.deadlineMs);
    const { signal } = controller;
    try {
      const handled = this.#daemon.handle({
        ...request,
        session,
        signal,
        emit: (stream, data) => this.send({ id, chunk: { stream, data } }),
        drop: () => this.drop(),
      });
      const result = await Promise.race([handled, onAbort(signal)]);
      this.send({ id, result, stages: [["fake", 1]] });
    } catch (error) {
      this.send({ id, error: toFailure(error) });
    } finally {
      clearTimeout(timer);
      this.#running.delete(id);
    }
  }

  #left(): void {
    for (const controller of this.#running.values()) {
      controller.abort(aborted());
    }
    if (this.#session !== undefined) {
      this.#daemon.leave(this, this.#session);
    }
  }
}

function onAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}

function aborted(): FakeDaemonError {
  return new FakeDaemonError({ code: "ABORTED", message: "Call was cancelled", faultDomain: "user", retryable: false });
}

function outOfTime(request: ClientRequest): FakeDaemonError {
  return new FakeDaemonError({
    code: "DEADLINE_EXCEEDED",
    message: `Call of ${request.method} took longer than ${request.deadlineMs} ms`,
    faultDomain: "host",
    retryable: true,
  });
}

export function toFailure(error: unknown): FakeFailure {
  if (error instanceof FakeDaemonError) {
    return error.failure;
  }
  if (error instanceof FakeAgentError) {
    return { code: error.code, message: error.message, faultDomain: "user", retryable: false };
  }
  const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return failureOf({ code: "INTERNAL", message, faultDomain: "bug", retryable: false });
}
