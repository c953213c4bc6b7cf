/** Finds a host that can run sandboxes, and connects to it. */

import type { ConnectOptions, Host, HostAddress, ImageBuilder } from "./api.js";
import type { Carrier } from "./carrier/index.js";
import { dialWhenFree, isTurnedAway } from "./client/handshake.js";
import { createHost, type HostBackend } from "./client/host.js";
import { checkInput, inputs, invalidArgument } from "./client/validation.js";
import type { KvmProbe } from "./doctor/index.js";
import { CoppiceError } from "./errors.js";
import { type RemoteAddress, readRemoteAddress, remoteEndpoint } from "./remote.js";

type Environment = Readonly<Record<string, string | undefined>>;

const TOKEN_REMEDY =
  "Set COPPICE_TOKEN to the content of the token file that its `coppiced serve` was given; programs may give `token` to connectHost.";

/** What `kind` and `COPPICE_HOST` may say, read. */
type Choice =
  | { readonly kind: "auto" | "kvm" | "carrier" }
  | { readonly kind: "remote"; readonly address: RemoteAddress };

/**
 * A host to fork sandboxes on. The caller closes it (`await using`). Throws `NO_USABLE_HOST` where there is none and none can
 * be started: the remedy names what is missing; `TOO_MANY_CONNECTIONS` after some seconds, `HOST_UNREACHABLE`,
 * `HOST_CERTIFICATE_UNTRUSTED`, `UNAUTHENTICATED`, `PROTOCOL_MISMATCH`, `INVALID_ARGUMENT`, `ABORTED`.
 */
export async function connectHost(options: ConnectOptions = {}): Promise<Host> {
  checkInput(inputs.connectOptions, options, "options");
  if (options.join !== undefined) {
    return await joinHost(options.join, options);
  }
  const choice = choose(options, process.env);
  switch (choice.kind) {
    case "remote":
      return await connectRemote(choice.address, options);
    case "kvm":
      return await connectLocal(options);
    case "carrier":
      return await connectCarrier(options);
    case "auto":
      return await connectAutomatically(options);
  }
}

/** An option wins over the environment; the environment over `auto`. */
function choose(options: ConnectOptions, env: Environment): Choice {
  const fromEnvironment = env["COPPICE_HOST"];
  const isAutomatic = options.kind === undefined || options.kind === "auto";
  const text = isAutomatic && fromEnvironment ? fromEnvironment : (options.kind ?? "auto");
  const field = text === options.kind ? "options.kind" : "COPPICE_HOST";
  if (text === "auto" || text === "kvm" || text === "carrier") {
    return { kind: text };
  }
  return { kind: "remote", address: readRemoteAddress(text, field) };
}

async function connectRemote(address: RemoteAddress, options: ConnectOptions): Promise<Host> {
  const token = options.token ?? process.env["COPPICE_TOKEN"];
  if (!token) {
    throw new CoppiceError(`A host on another machine asks for its token, and none is given for ${address.host}`, {
      code: "UNAUTHENTICATED",
      faultDomain: "user",
      remedy: TOKEN_REMEDY,
    });
  }
  const endpoint = remoteEndpoint(address, options, process.env);
  options.onProgress?.(`Connecting to ${endpoint.host}:${endpoint.port}`);
  return await openHost(endpoint, { token }, pathBackend(options), options);
}

/** Real KVM where it can run Linux guests, which only running one shows; else the emulated host, which is always the same. */
async function connectAutomatically(options: ConnectOptions): Promise<Host> {
  const kvm = await probe(options);
  options.onProgress?.(
    kvm.usable
      ? "Uses this machine's KVM"
      : `Uses an emulated host: this machine's KVM can't run Linux guests (${kvm.reason})`,
  );
  return kvm.usable ? await connectLocal(options) : await connectCarrier(options);
}

async function connectLocal(options: ConnectOptions): Promise<Host> {
  await requireKvm(options);
  const { ensureLocalHost } = await import("./local/index.js");
  const local = await ensureLocalHost(pick(options)).catch((error: unknown) => {
    throw noUsableHost("the daemon can't be started", error);
  });
  try {
    const backend = { ...pathBackend(options), release: releaseOf(local) };
    return await openHost({ unix: local.unix }, {}, backend, options);
  } catch (error) {
    await local.release({ stopIfUnused: local.started }).catch(() => undefined);
    throw error;
  }
}

/** Throws `NO_USABLE_HOST` where this machine's KVM can't run Linux guests. */
export async function requireKvm(options: Pick<ConnectOptions, "signal">): Promise<void> {
  const kvm = await probe(options);
  if (!kvm.usable) {
    const reason = new CoppiceError(kvm.reason, {
      code: "LOCAL_KVM_UNUSABLE",
      faultDomain: "host",
      remedy: kvm.remedy ?? 'Use the emulated host: kind "carrier".',
    });
    throw noUsableHost("this machine's KVM can't be used", reason);
  }
}

async function probe(options: Pick<ConnectOptions, "signal">): Promise<KvmProbe> {
  const { probeKvm } = await import("./doctor/index.js");
  return await probeKvm(options.signal === undefined ? {} : { signal: options.signal }).catch((error: unknown) => {
    throw noUsableHost("it can't be found out what this machine's KVM can do", error);
  });
}

async function connectCarrier(options: ConnectOptions): Promise<Host> {
  const carrier = await startCarrier(options).catch((error: unknown) => {
    throw noUsableHost("the emulated host can't be had", error);
  });
  try {
    return await openHost(
      { host: carrier.host, port: carrier.port },
      { token: carrier.token },
      carrierBackend(carrier, options),
      options,
    );
  } catch (error) {
    await carrier.release({ stopIfUnused: carrier.started }).catch(() => undefined);
    throw error;
  }
}

async function joinHost(join: HostAddress, options: ConnectOptions): Promise<Host> {
  for (const key of ["kind", "token", "fingerprint", "ca", "allowPlaintext"] as const) {
    if (options[key] !== undefined) {
      throw invalidArgument(`options.${key}`, "can't be given together with `join`, which says it already");
    }
  }
  const backend = join.kind === "carrier" ? joinedCarrierBackend(options) : pathBackend(options);
  return await openHost(join.endpoint, { token: join.token, session: join.session }, backend, options);
}

async function openHost(
  endpoint: HostAddress["endpoint"],
  credentials: { readonly token?: string | undefined; readonly session?: string },
  backend: HostBackend,
  options: ConnectOptions,
): Promise<Host> {
  const { token, session } = credentials;
  const connection = await dialWhenFree({ endpoint, token, session, signal: options.signal });
  const { welcome } = connection;
  const address: HostAddress = Object.freeze({
    kind: welcome.hostKind,
    endpoint,
    session: welcome.session,
    ...(token === undefined ? {} : { token }),
  });
  try {
    return await createHost(
      { connection, address, backend, pool: options.pool },
      options.signal === undefined ? {} : { signal: options.signal },
    );
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** A daemon that opens image files by their path: it must see the same file system as this process. */
function pathBackend(options: ConnectOptions): HostBackend {
  const build = options.imageBuilder ?? buildImage;
  return {
    provideImage: async (spec, buildOptions) => {
      const { id, path } = await build(spec, buildOptions);
      return { id, source: { path } };
    },
    makeDisk,
    release: () => Promise.resolve(),
  };
}

function carrierBackend(carrier: Carrier, options: ConnectOptions): HostBackend {
  const build = options.imageBuilder ?? buildImage;
  return {
    provideImage: async (spec, buildOptions) => {
      const { id, path } = await build(spec, buildOptions);
      return { id, source: await carrier.attachImage(id, path) };
    },
    makeDisk,
    release: releaseOf(carrier),
  };
}

function releaseOf(host: Pick<Carrier, "release">): HostBackend["release"] {
  return (options) => host.release({ stopIfUnused: options.stopHostIfUnused === true });
}

/** Who joins a session does not hold its carrier: the connection that made the session does. */
function joinedCarrierBackend(options: ConnectOptions): HostBackend {
  return {
    provideImage: async (spec, buildOptions) => {
      const carrier = await startCarrier(options);
      try {
        return await carrierBackend(carrier, options).provideImage(spec, buildOptions);
      } finally {
        await carrier.release();
      }
    },
    makeDisk,
    release: () => Promise.resolve(),
  };
}

/** What builds images and starts hosts is loaded when it is used: a worker thread that joins a session needs none of it. */
const buildImage: ImageBuilder = async (spec, options) => {
  const { buildImageFile } = await import("./artifacts/index.js");
  return await buildImageFile(spec, options);
};

const makeDisk: HostBackend["makeDisk"] = async (sizeMiB, options) => {
  const { makeBlankDisk } = await import("./artifacts/index.js");
  return await makeBlankDisk(sizeMiB, options);
};

async function startCarrier(options: ConnectOptions): Promise<Carrier> {
  const { ensureCarrier } = await import("./carrier/index.js");
  return await ensureCarrier(pick(options));
}

function pick(options: ConnectOptions): Pick<ConnectOptions, "signal" | "onProgress"> {
  const { signal, onProgress } = options;
  return { ...(signal === undefined ? {} : { signal }), ...(onProgress === undefined ? {} : { onProgress }) };
}

/**
 * The cause says in detail what is missing, and its remedy how to get it. An abort stays an abort, a wrong option the user's, and a
 * host that is full is there.
 */
function noUsableHost(what: string, cause: unknown): unknown {
  const known = cause instanceof CoppiceError ? cause : undefined;
  if (known?.code === "ABORTED" || known?.code === "INVALID_ARGUMENT" || isTurnedAway(known)) {
    return known;
  }
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new CoppiceError(`No usable host: ${what}: ${reason}`, {
    code: "NO_USABLE_HOST",
    faultDomain: "host",
    retryable: known?.retryable ?? false,
    remedy: known?.remedy ?? "Run `coppice doctor`: it says what this machine can do and what is missing.",
    cause,
  });
}
