/** From an endpoint to a connection: connects the socket, says hello, checks the welcome. */

import { connect as connectSocket, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { abortError, onAbort } from "../abort.js";
import type { HostAddress, TlsTrust } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import { decode, encode } from "./codec.js";
import { type Connection, createConnection } from "./connection.js";
import { FrameReader, frame } from "./frames.js";
import { CLIENT_PROTOCOL, expectMessage, failureToError, greetingSchema, type Welcome } from "./messages.js";
import { openSecureSocket } from "./tls.js";

export type Endpoint = HostAddress["endpoint"];

export interface DialOptions {
  readonly endpoint: Endpoint;
  /** Required on TCP. */
  readonly token?: string | undefined;
  /** Session to join. Default: a new one. */
  readonly session?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Default: `DEFAULTS.connection.connectTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
}

const NANOSECONDS_PER_MS = 1_000_000n;

/** Throws `HOST_UNREACHABLE`, `HOST_CERTIFICATE_UNTRUSTED`, `PROTOCOL_MISMATCH`, `ABORTED`, or what the daemon refuses with. */
export async function dial(options: DialOptions): Promise<Connection> {
  const where = describeEndpoint(options.endpoint);
  if (options.signal?.aborted === true) {
    throw dialError(undefined, where, options.signal);
  }
  // Whoever aborts right after this call is heard: nothing is awaited before there are listeners, but for a TLS handshake.
  const socket = isSecure(options.endpoint) ? await openSecure(options.endpoint, options) : openPlain(options.endpoint);
  socket.setNoDelay(true);
  socket.setKeepAlive(true, DEFAULTS.connection.keepAliveMs);
  const reader = new FrameReader();
  try {
    options.signal?.throwIfAborted();
    const welcome = await greet(socket, reader, options);
    return createConnection(socket, reader, welcome);
  } catch (error) {
    socket.destroy();
    throw dialError(error, where, options.signal);
  }
}

type SecureEndpoint = Extract<Endpoint, { host: string }> & { readonly tls: TlsTrust };

function isSecure(endpoint: Endpoint): endpoint is SecureEndpoint {
  return "tls" in endpoint && endpoint.tls !== undefined;
}

async function openSecure(endpoint: SecureEndpoint, options: DialOptions): Promise<Socket> {
  const { host, port, tls: trust } = endpoint;
  const { signal, timeoutMs = DEFAULTS.connection.connectTimeoutMs } = options;
  try {
    return await openSecureSocket({ host, port, trust, timeoutMs, signal });
  } catch (error) {
    throw dialError(error, describeEndpoint(endpoint), signal);
  }
}

/** It is still connecting: what is written waits for that. */
function openPlain(endpoint: Endpoint): Socket {
  return "unix" in endpoint
    ? connectSocket(endpoint.unix)
    : connectSocket({ host: endpoint.host, port: endpoint.port });
}

/** As `dial`, and again for some seconds where the host is full: others may leave. Throws as `dial`. */
export async function dialWhenFree(options: DialOptions): Promise<Connection> {
  const { fullPatienceMs, fullPauseMs } = DEFAULTS.connection;
  const started = performance.now();
  let refusal: unknown;
  for (;;) {
    try {
      return await dial(options);
    } catch (error) {
      if (isTurnedAway(error)) refusal = error;
      const isAgain = refusal === error || error instanceof ClosedEarly;
      if (!isAgain || performance.now() - started >= fullPatienceMs) throw isAgain ? (refusal ?? error) : error;
      // Who aborts is told by the next attempt.
      await sleep(fullPauseMs, undefined, { signal: options.signal }).catch(() => undefined);
    }
  }
}

/** Whether a host refused a connection because it has too many, and may be well otherwise. */
export function isTurnedAway(error: unknown): boolean {
  return error instanceof CoppiceError && error.code === "TOO_MANY_CONNECTIONS";
}

/** A refusal is sent at once, and the end of the connection may overtake it: then this is all that is seen. */
class ClosedEarly extends CoppiceError {
  constructor(where: string, cause?: unknown) {
    super(`Host at ${where} closed the connection before its greeting`, {
      code: "HOST_UNREACHABLE",
      faultDomain: "host",
      retryable: true,
      remedy: "Check the address. If it is right, the host may have too many connections: try again in a moment.",
      cause,
    });
  }
}

export function describeEndpoint(endpoint: Endpoint): string {
  return "unix" in endpoint ? endpoint.unix : `${endpoint.host}:${endpoint.port}`;
}

function greet(socket: Socket, reader: FrameReader, options: DialOptions): Promise<Welcome> {
  const timeoutMs = options.timeoutMs ?? DEFAULTS.connection.connectTimeoutMs;
  return new Promise<Welcome>((resolve, reject) => {
    const timer = setTimeout(() => finish(() => reject(new Error(`No answer within ${timeoutMs} ms`))), timeoutMs);
    const where = describeEndpoint(options.endpoint);
    const isClosed = (error: NodeJS.ErrnoException): boolean => error.code === "EPIPE" || error.code === "ECONNRESET";
    const onError = (error: Error): void =>
      finish(() => reject(isClosed(error) ? new ClosedEarly(where, error) : error));
    const onClose = (): void => finish(() => reject(new ClosedEarly(where)));
    const onData = (bytes: Buffer): void => {
      try {
        reader.push(bytes);
        const payload = reader.next();
        if (payload !== undefined) {
          const welcome = readGreeting(payload);
          finish(() => resolve(welcome));
        }
      } catch (error) {
        finish(() => reject(error));
      }
    };
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      offAbort();
      socket.off("error", onError).off("close", onClose).off("data", onData);
      // Nothing may arrive while nobody listens; the connection's own listener starts the flow again.
      socket.pause();
      settle();
    };
    const offAbort = onAbort(options.signal, () => finish(() => reject(options.signal?.reason)));
    socket.on("error", onError).on("close", onClose).on("data", onData);
    socket.write(frame(encode(hello(options))));
  });
}

function hello(options: DialOptions): object {
  return {
    protocol: CLIENT_PROTOCOL,
    client: `process ${process.pid}, Node ${process.versions.node}`,
    token: options.token,
    session: options.session,
    realtimeNs: BigInt(Date.now()) * NANOSECONDS_PER_MS,
  };
}

function readGreeting(payload: Buffer): Welcome {
  const greeting = expectMessage(greetingSchema, decode(payload), "hello");
  if ("refused" in greeting) {
    throw failureToError(greeting.refused);
  }
  if (greeting.welcome.protocol !== CLIENT_PROTOCOL) {
    throw new CoppiceError(
      `Host speaks protocol ${greeting.welcome.protocol} (release ${greeting.welcome.version}), this client ${CLIENT_PROTOCOL}`,
      {
        code: "PROTOCOL_MISMATCH",
        faultDomain: "user",
        remedy: "Use the same release of client and host: `coppice host stop`, then start it again.",
      },
    );
  }
  return greeting.welcome;
}

function dialError(error: unknown, where: string, signal: AbortSignal | undefined): CoppiceError {
  if (error instanceof CoppiceError) {
    return error;
  }
  if (signal?.aborted === true) {
    return abortError("Connecting", signal);
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new CoppiceError(`Host at ${where} can't be reached: ${reason}`, {
    code: "HOST_UNREACHABLE",
    faultDomain: "host",
    retryable: true,
    remedy: "Check the address, whether it wants TLS (coppice+tls://), and that the host runs: `coppice host status`.",
    cause: error,
  });
}
