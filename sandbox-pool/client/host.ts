/** Handle on a host of sandboxes. */

import type {
  CallOptions,
  Checkpoint,
  ForkOptions,
  ForkResult,
  Guest,
  Host,
  HostAddress,
  HostCloseOptions,
  HostInfo,
  HostInventory,
  HostStats,
  Image,
  ImageSpec,
  Limits,
  MemoryUsage,
  Pool,
  Sandbox,
  WarmPoolOptions,
} from "../api.js";
import type { CoppiceError } from "../errors.js";
import { createWarmPool, type WarmPool } from "../pool/warm-pool.js";
import { type CheckpointFacts, createCheckpoint } from "./checkpoint.js";
import { type Connection, hostClosed } from "./connection.js";
import { createGuest } from "./guest.js";
import { type Life, toLife } from "./life.js";
import { checkpointLostSchema, expectMessage, results, sandboxEndedSchema } from "./messages.js";
import { createRewinder, type Rewinder } from "./rewinder.js";
import { createSandbox } from "./sandbox.js";
import { createSession, type Session } from "./session.js";
import { createTemplate, type TemplateOwnership } from "./template.js";
import { checkInput, inputs } from "./validation.js";
import { createForkSource } from "./wire-fork-source.js";

/** What differs between local daemon, carrier and remote daemon. */
export interface HostBackend {
  /** Builds the image, or finds it, and puts it where the daemon can open it. */
  provideImage(
    spec: ImageSpec,
    options: CallOptions & { readonly onProgress?: (message: string) => void },
  ): Promise<{ readonly id: string; readonly source: { readonly path: string } | { readonly serial: string } }>;
  /** The first contents of a writable disk. */
  makeDisk(sizeMiB: number, options: Pick<CallOptions, "signal">): Promise<Uint8Array>;
  /** This client needs the host no more; called when its connection is closed. */
  release(options: HostCloseOptions): Promise<void>;
}

export interface HostParts {
  readonly connection: Connection;
  readonly address: HostAddress;
  readonly backend: HostBackend;
  readonly pool?: WarmPoolOptions | undefined;
}

/** Asks the daemon what it is. The connection belongs to the host from now on. */
export async function createHost(parts: HostParts, options: CallOptions = {}): Promise<Host> {
  const session = createSession(parts.connection);
  const { result } = await session.request({
    method: "host.info",
    params: {},
    schema: results.hostInfo,
    spec: options,
  });
  return new HostHandle(parts, session, Object.freeze(result));
}

type ImageOptions = CallOptions & { readonly onProgress?: (message: string) => void };

class HostHandle implements Host {
  readonly info: HostInfo;
  readonly address: HostAddress;
  readonly images: Host["images"];
  readonly templates: Host["templates"];
  readonly checkpoints: Host["checkpoints"];
  readonly sandboxes: Host["sandboxes"];
  readonly guests: Host["guests"];
  readonly pool: Pool;
  readonly ended: Promise<CoppiceError>;
  readonly #backend: HostBackend;
  readonly #session: Session;
  readonly #pool: WarmPool;
  readonly #rewinder: Rewinder;
  #closing: Promise<void> | undefined;

  constructor(parts: HostParts, session: Session, info: HostInfo) {
    this.info = info;
    this.address = parts.address;
    this.#backend = parts.backend;
    this.#session = session;
    const rewound = new Set<string>();
    const source = createForkSource(session, (checkpoint) => rewound.has(checkpoint));
    const pool = createWarmPool({ source, options: parts.pool ?? {} });
    this.#pool = pool;
    this.#rewinder = createRewinder({ session, pool, rewound });
    this.pool = Object.freeze({
      forecast: (checkpointId: string, weight: number) => {
        checkInput(inputs.id, checkpointId, "checkpointId");
        checkInput(inputs.weight, weight, "weight");
        pool.forecast(checkpointId, weight);
      },
      ready: (checkpointId: string) => pool.ready(checkpointId),
      stats: () => pool.stats(),
    });
    this.images = Object.freeze({
      build: (spec: ImageSpec, options: ImageOptions = {}) => this.#buildImage(spec, options),
    });
    this.templates = Object.freeze({ create: this.#createTemplate });
    this.checkpoints = Object.freeze({
      get: (id: string, dirtyPages = 0) => {
        checkInput(inputs.id, id, "id");
        return this.#checkpoint({ id, dirtyPages }, "session");
      },
    });
    this.sandboxes = Object.freeze({
      get: (id: string) => {
        checkInput(inputs.id, id, "id");
        return this.#sandbox({ id, stages: [] });
      },
    });
    this.guests = Object.freeze({ get: (id: string) => this.#guestOf(id) });
    this.ended = new Promise((resolve) => session.connection.subscribe({ onEnd: resolve }));
    session.connection.subscribe({
      onEvent: (event, params) => {
        if (event === "sandbox.ended") {
          pool.lost(expectMessage(sandboxEndedSchema, params, "event sandbox.ended").sandbox);
        }
        if (event === "checkpoint.lost") {
          void pool.forget(expectMessage(checkpointLostSchema, params, "event checkpoint.lost").checkpoint);
        }
      },
      onReply: () => pool.poke(),
      onEnd: (reason) => void pool.drain(reason),
    });
  }

  async stats(options: CallOptions = {}): Promise<HostStats> {
    checkInput(inputs.callOptions, options, "options");
    const schema = results.hostStats;
    const { result } = await this.#session.request({ method: "host.stats", params: {}, schema, spec: options });
    return result;
  }

  async metrics(options: CallOptions = {}): Promise<string> {
    checkInput(inputs.callOptions, options, "options");
    const schema = results.hostMetrics;
    const { result } = await this.#session.request({ method: "host.metrics", params: {}, schema, spec: options });
    return result.text;
  }

  async inventory(options: CallOptions & { readonly memory?: boolean } = {}): Promise<HostInventory> {
    checkInput(inputs.inventoryOptions, options, "options");
    const { memory = false, ...spec } = options;
    const schema = results.inventory;
    const { result } = await this.#session.request({ method: "host.list", params: { memory }, schema, spec });
    return {
      sandboxes: result.sandboxes.map(({ sandbox, ...row }) => ({ id: sandbox, ...row })),
      checkpoints: result.checkpoints.map(({ checkpoint, ...row }) => ({ id: checkpoint, ...row })),
    };
  }

  async memoryUsage(
    of: { readonly sandbox: string } | { readonly checkpoint: string },
    options: CallOptions = {},
  ): Promise<MemoryUsage> {
    checkInput(inputs.memoryUsageOf, of, "of");
    checkInput(inputs.callOptions, options, "options");
    const schema = results.memoryUsage;
    const { result } = await this.#session.request({ method: "memory.usage", params: of, schema, spec: options });
    return result;
  }

  close(options: HostCloseOptions = {}): Promise<void> {
    this.#closing ??= this.#close(options);
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(options: HostCloseOptions): Promise<void> {
    // Not left to the session's end: other connections may share the session.
    await this.#pool.drain(hostClosed());
    await this.#session.connection.close();
    await this.#backend.release(options);
  }

  async #buildImage(spec: ImageSpec, options: ImageOptions): Promise<Image> {
    checkInput(inputs.imageOptions, options, "options");
    const { id, source } = await this.#backend.provideImage(spec, options);
    const { onProgress: _, ...call } = options;
    await this.#session.request({
      method: "image.attach",
      params: { id, source },
      schema: results.empty,
      spec: call,
    });
    return Object.freeze({ id });
  }

  readonly #createTemplate: Host["templates"]["create"] = (image, options) =>
    createTemplate(
      {
        session: this.#session,
        hostVersion: this.info.version,
        toSandbox: (id, stages) => this.#sandbox({ id, stages }),
        makeDisk: (sizeMiB, disk) => this.#backend.makeDisk(sizeMiB, disk),
        toTemplate: (facts, ownership) => this.#checkpoint(facts, ownership),
      },
      image,
      options,
    );

  #sandbox(life: Life): Sandbox {
    return createSandbox({
      session: this.#session,
      life,
      rewind: (request) => this.#rewinder.rewind(request),
      toCheckpoint: (facts) => this.#checkpoint(facts, "session"),
    });
  }

  #guestOf(id: string): Guest {
    checkInput(inputs.id, id, "id");
    return createGuest(
      ({ op, args, schema, spec = {} }) =>
        this.#session.request({ method: "host.call", params: { sandbox: id, op, args }, schema, spec }),
      () => id,
    );
  }

  #checkpoint(facts: CheckpointFacts, ownership: TemplateOwnership): Checkpoint {
    return createCheckpoint({
      ...facts,
      fork: (checkpoint, count, options) => this.#fork(checkpoint, count, options),
      delta: async (checkpoint, spec) => {
        const request = { method: "checkpoint.delta", params: { checkpoint }, schema: results.delta, spec };
        return (await this.#session.request(request)).result;
      },
      drop: (checkpoint) => this.#drop(checkpoint, ownership),
    });
  }

  async #fork(checkpoint: string, count: number, options: ForkOptions): Promise<readonly ForkResult[]> {
    const { limits, ...child } = options;
    const acquired = await this.#pool.acquire(checkpoint, count, child);
    const forked = acquired.map(
      (result): ForkResult =>
        result.ok
          ? { ok: true, sandbox: this.#sandbox(toLife(checkpoint, result.lease)) }
          : { ok: false, error: result.error },
    );
    return limits === undefined ? forked : await Promise.all(forked.map((result) => limited(result, limits, child)));
  }

  async #drop(checkpoint: string, ownership: TemplateOwnership): Promise<void> {
    this.#rewinder.forget(checkpoint);
    await this.#pool.forget(checkpoint);
    const { connection } = this.#session;
    if (ownership === "host" || connection.ended !== undefined) {
      return;
    }
    try {
      await this.#session.request({ method: "checkpoint.drop", params: { checkpoint }, schema: results.empty });
    } catch (error) {
      // The session ended meanwhile, and the checkpoint with it.
      if (connection.ended === undefined) {
        throw error;
      }
    }
  }
}

/** A fork that can't be held to the limits that were asked for is none. */
async function limited(result: ForkResult, limits: Limits, options: CallOptions): Promise<ForkResult> {
  if (!result.ok) {
    return result;
  }
  const { signal, deadlineMs } = options;
  try {
    await result.sandbox.limit(limits, {
      ...(signal === undefined ? {} : { signal }),
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
    });
    return result;
  } catch (error) {
    // Where it can't be closed the session's end closes it; what its limits failed by says more.
    await result.sandbox.close().catch(() => undefined);
    return { ok: false, error: error instanceof Error ? error : new Error(String(error)) };
  }
}
