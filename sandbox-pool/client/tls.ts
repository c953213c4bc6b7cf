/** The encrypted way to a remote host, and how its certificate is judged before anything is sent. */

import { isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";

import { onAbort } from "../abort.js";
import type { TlsTrust } from "../api.js";
import { CoppiceError } from "../errors.js";

interface SecureOptions {
  readonly host: string;
  readonly port: number;
  readonly trust: TlsTrust;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** Throws `HOST_CERTIFICATE_UNTRUSTED`, or what the socket fails with. The handshake is done: what is written now only the host reads. */
export async function openSecureSocket(options: SecureOptions): Promise<Socket> {
  const { host, port, trust } = options;
  const socket = connectTls({
    host,
    port,
    minVersion: "TLSv1.3",
    // A pinned certificate is compared below; nobody has to have signed it.
    rejectUnauthorized: trust.fingerprint === undefined,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(trust.ca === undefined ? {} : { ca: trust.ca }),
  });
  try {
    await handshake(socket, options);
    if (trust.fingerprint !== undefined) {
      comparePin(socket, trust.fingerprint);
    }
    return socket;
  } catch (error) {
    socket.destroy();
    throw socket.authorizationError ? untrusted(`${socket.authorizationError}`, error) : error;
  }
}

function handshake(socket: TLSSocket, options: SecureOptions): Promise<void> {
  const { signal, timeoutMs } = options;
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(
      () => finish(() => reject(new Error(`No TLS handshake within ${timeoutMs} ms`))),
      timeoutMs,
    );
    const onError = (error: Error): void => finish(() => reject(error));
    const onClose = (): void => finish(() => reject(new Error("Connection was closed in the TLS handshake")));
    const onSecure = (): void => finish(resolve);
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      offAbort();
      socket.off("error", onError).off("close", onClose).off("secureConnect", onSecure);
      // Between here and the next listener an error must not end the process.
      socket.on("error", () => undefined);
      settle();
    };
    const offAbort = onAbort(signal, () => finish(() => reject(signal?.reason)));
    socket.on("error", onError).on("close", onClose).on("secureConnect", onSecure);
  });
}

function comparePin(socket: TLSSocket, pinned: string): void {
  const digest = socket.getPeerX509Certificate()?.fingerprint256 ?? "";
  const shown = `sha256:${digest.replaceAll(":", "").toLowerCase()}`;
  if (shown !== pinned.toLowerCase()) {
    // What OpenSSL thinks of a certificate that nobody signed does not matter here.
    throw untrusted(`its fingerprint is ${shown}`);
  }
}

function untrusted(reason: string, cause?: unknown): CoppiceError {
  return new CoppiceError(`Host shows a certificate that can't be trusted: ${reason}`, {
    code: "HOST_CERTIFICATE_UNTRUSTED",
    faultDomain: "user",
    remedy:
      "Give the `fingerprint` that coppiced printed when it started, or the `ca` that signed its certificate. Where both were right before, somebody may stand between you and the host.",
    cause,
  });
}
