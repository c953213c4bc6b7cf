/** Finds a host that can run sandboxes, and connects to it. */

import { z } from "zod";

import type { ConnectOptions, Host, HostAddress } from "./api.js";
import type { Connection } from "./client/connection.js";
import { dial } from "./client/handshake.js";
import { createHost, type HostBackend } from "./client/host.js";
import { checkInput, invalidArgument } from "./client/validation.js";
import { CoppiceError } from "./errors.js";

const endpointSchema = z.union([
  z.strictObject({ unix: z.string().min(1) }),
  z.strictObject({ host: z.string().min(1), port: z.number().int().min(1).max(65_535) }),
]);

const addressSchema = z.strictObject({
  kind: z.enum(["kvm", "carrier"]),
  endpoint: endpointSchema,
  token: z.string().optional(),
  session: z.string().min(1),
});

const optionsSchema = z.strictObject({
  kind: z
    .string()
    .refine((kind) => ["auto", "kvm", "carrier"].includes(kind) || kind.startsWith("coppice://"), {
      error: "must be auto, kvm, carrier or coppice://host:port",
    })
    .optional(),
  token: z.string().min(1).optional(),
  join: addressSchema.optional(),
  signal: z.custom<AbortSignal>((value) => value instanceof AbortSignal, "must be an AbortSignal").optional(),
  onProgress: z.custom((value) => typeof value === "function", "must be a function").optional(),
  pool: z.looseObject({}).optional(),
  imageBuilder: z.custom((value) => typeof value === "function", "must be a function").optional(),
});

/**
 * A host to fork sandboxes on. The caller closes it (`await using`). Throws `NO_USABLE_HOST` where there is none and none can
 * be started: the remedy names what is missing; `HOST_UNREACHABLE`, `PROTOCOL_MISMATCH`, `INVALID_ARGUMENT`, `ABORTED`.
 */
export async function connectHost(options: ConnectOptions = {}): Promise<Host> {
  checkInput(optionsSchema, options, "options");
  if (options.join !== undefined) {
    return await joinHost(options.join, options);
  }
  throw new CoppiceError("No usable host", { code: "NO_USABLE_HOST", faultDomain: "user" });
}

async function joinHost(join: HostAddress, options: ConnectOptions): Promise<Host> {
  for (const key of ["kind", "token"] as const) {
    if (options[key] !== undefined) {
      throw invalidArgument(key, "can't be given together with `join`, which says it already");
    }
  }
  const connection = await dial({
    endpoint: join.endpoint,
    token: join.token,
    session: join.session,
    signal: options.signal,
  });
  return await open(connection, join, options);
}

async function open(connection: Connection, address: HostAddress, options: ConnectOptions): Promise<Host> {
  try {
    return await createHost(
      { connection, address, backend: createBackend(options), pool: options.pool },
      options.signal === undefined ? {} : { signal: options.signal },
    );
  } catch (error) {
    await connection.close();
    throw error;
  }
}

function createBackend(options: ConnectOptions): HostBackend {
  return {
    provideImage: async (spec, buildOptions) => {
      if (options.imageBuilder === undefined) {
        throw new CoppiceError("No image builder", { code: "NO_USABLE_HOST", faultDomain: "user" });
      }
      const { id, path } = await options.imageBuilder(spec, buildOptions);
      return { id, source: { path } };
    },
    stopIfUnused: () => Promise.resolve(),
  };
}
