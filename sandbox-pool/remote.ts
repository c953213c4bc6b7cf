/** Addresses of running daemons, as users write them, and whether the way there is safe. */

import { readFileSync } from "node:fs";
import { isIP } from "node:net";

import type { ConnectOptions, TlsTrust } from "./api.js";
import { checkInput, inputs, invalidArgument } from "./client/validation.js";

type Environment = Readonly<Record<string, string | undefined>>;

export interface RemoteAddress {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
}

interface RemoteEndpoint {
  readonly host: string;
  readonly port: number;
  readonly tls?: TlsTrust;
}

/** `coppice://host:port` or `coppice+tls://host:port`. Throws `INVALID_ARGUMENT` naming `field`. */
export function readRemoteAddress(text: string, field: string): RemoteAddress {
  // URL parsers know no such scheme and leave the host part alone, so it is read here.
  const match = /^coppice(\+tls)?:\/\/(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})\/?$/.exec(text);
  const host = match?.[2] ?? match?.[3];
  const port = Number(match?.[4]);
  if (host === undefined || port < 1 || port > 65_535) {
    throw invalidArgument(field, "must be auto, kvm, carrier, coppice://host:port or coppice+tls://host:port");
  }
  return { host, port, isTls: match?.[1] !== undefined };
}

/**
 * Where to connect, and whom to trust there: an option wins over the environment. Throws `INVALID_ARGUMENT` where the token
 * would cross a network that anybody on the way can read.
 */
export function remoteEndpoint(address: RemoteAddress, options: ConnectOptions, env: Environment): RemoteEndpoint {
  const { host, port } = address;
  if (address.isTls) {
    return { host, port, tls: trustOf(options, env) };
  }
  for (const key of ["fingerprint", "ca"] as const) {
    if (options[key] !== undefined) {
      throw invalidArgument(`options.${key}`, "has no meaning without TLS: use coppice+tls://host:port");
    }
  }
  const isAllowed = options.allowPlaintext ?? env["COPPICE_ALLOW_PLAINTEXT"] === "1";
  if (!isAllowed && !isLoopback(host)) {
    throw invalidArgument(
      "options.kind",
      `sends the token to ${host} for anybody on the way to read: use coppice+tls://${host}:${port}, or allowPlaintext where the network itself encrypts`,
    );
  }
  return { host, port };
}

function trustOf(options: ConnectOptions, env: Environment): TlsTrust {
  if (options.fingerprint !== undefined && options.ca !== undefined) {
    throw invalidArgument("options.fingerprint", "can't be given together with `ca`: one of them decides");
  }
  if (options.fingerprint !== undefined) {
    return { fingerprint: options.fingerprint };
  }
  if (options.ca !== undefined) {
    return { ca: options.ca };
  }
  const { COPPICE_FINGERPRINT: fingerprint, COPPICE_CA: path } = env;
  if (fingerprint) {
    checkInput(inputs.fingerprint, fingerprint, "COPPICE_FINGERPRINT");
    return { fingerprint };
  }
  return path ? { ca: readCa(path) } : {};
}

function readCa(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw invalidArgument("COPPICE_CA", `names a file that can't be read: ${(error as Error).message}`);
  }
}

function isLoopback(host: string): boolean {
  switch (isIP(host)) {
    case 4:
      return host.startsWith("127.");
    case 6:
      return host === "::1";
    default:
      return host === "localhost";
  }
}
