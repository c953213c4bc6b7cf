/**
 * The emulated host of this user: found or started, shared by all processes, ended when unused.
 *
 * One lock guards the set of carriers. A process that uses one says so in a file beside it, so that another one that has
 * just ended its work does not stop it.
 */

import { createHash } from "node:crypto";

import { ensureHostArtifacts, type HostArtifactsOptions } from "../artifacts/index.js";
import { type FileLock, lockFile, withFileLock } from "../artifacts/lock.js";
import type { Connection } from "../client/connection.js";
import { dial } from "../client/handshake.js";
import { results } from "../client/messages.js";
import { CoppiceError } from "../errors.js";
import { DEFAULTS } from "./defaults.js";
import { endCarrier } from "./end.js";
import { chooseMemoryMiB } from "./memory.js";
import { readOnlyDrive } from "./qemu-command.js";
import { qmp } from "./qmp.js";
import {
  addUser,
  countUsers,
  listCarriers,
  lockPathOf,
  qmpSocketOf,
  type RunningCarrier,
  removeStale,
} from "./record.js";
import { runtimeDirectory } from "./runtime-directory.js";
import { readConsole, startCarrier } from "./start.js";

export interface CarrierOptions extends HostArtifactsOptions {
  /** A machine with many cores runs several carriers: 0 (default), 1, … */
  readonly instance?: number;
  /** Most memory that it may take. Default: COPPICE_CARRIER_MEMORY_MIB, or half of what is available, 2 to 16 GiB. */
  readonly memoryMiB?: number;
  /** Seconds without clients after which it ends by itself. Default: COPPICE_CARRIER_IDLE_SECONDS, or 60. */
  readonly idleSeconds?: number;
}

export interface Carrier {
  readonly host: string;
  readonly port: number;
  /** For the first frame of a client. Keep it out of logs. */
  readonly token: string;
  /** Of the keeper, QEMU's parent. */
  readonly pid: number;
  /** Whether this call has started it; otherwise it ran already. */
  readonly started: boolean;
  /** Makes an image file a disk of the carrier, for `image.attach` with the serial. Twice is a no-op. */
  attachImage(id: string, path: string): Promise<{ readonly serial: string }>;
  /** QEMU's messages and the console, for diagnosis. */
  console(): string;
  /**
   * This process needs it no more. With `stopIfUnused` it ends at once unless somebody else uses it; otherwise it ends by
   * itself later. Twice is a no-op.
   */
  release(options?: ReleaseOptions): Promise<void>;
}

export interface ReleaseOptions {
  readonly stopIfUnused?: boolean;
}

export interface CarrierStatus {
  readonly pid: number;
  readonly port: number;
  readonly instance: number;
  readonly key: string;
  readonly memoryMiB: number;
  readonly startedAt: string;
  readonly users: number;
  /** Sessions that its daemon counts; null where it does not answer. */
  readonly sessions: number | null;
}

/** Finds the running carrier of these artefacts, or starts one. */
export async function ensureCarrier(options: CarrierOptions = {}): Promise<Carrier> {
  const artifacts = await ensureHostArtifacts(options);
  const runtime = runtimeDirectory();
  const instance = options.instance ?? 0;
  const lockOptions = {
    signal: options.signal,
    onWait: () => options.onProgress?.("waits for another process that starts the emulated host"),
  };
  return await withFileLock(lockPathOf(runtime), lockOptions, async () => {
    removeStale(runtime);
    const running = listCarriers(runtime);
    const own = running.find((carrier) => carrier.key === artifacts.key && carrier.instance === instance);
    if (own !== undefined && (await isUsable(own))) {
      return new KeptCarrier(own, false);
    }
    await endIdle(running.filter((carrier) => carrier.key !== artifacts.key));
    const carrier = await startCarrier({
      ...options,
      runtime,
      artifacts,
      instance,
      memoryMiB: chooseMemoryMiB(options.memoryMiB),
      idleSeconds: chooseIdleSeconds(options.idleSeconds),
    });
    return new KeptCarrier(carrier, true);
  });
}

/** As `carrier.release`. */
export async function releaseCarrier(carrier: Carrier, options: ReleaseOptions = {}): Promise<void> {
  await carrier.release(options);
}

/** Ends all carriers of this user, whoever uses them. Gives how many there were. */
export async function stopCarrier(options: { readonly signal?: AbortSignal } = {}): Promise<number> {
  const runtime = runtimeDirectory();
  return await withFileLock(lockPathOf(runtime), options, async () => {
    const running = listCarriers(runtime);
    await Promise.all(running.map(endCarrier));
    removeStale(runtime);
    return running.length;
  });
}

export async function carrierStatus(): Promise<readonly CarrierStatus[]> {
  const running = listCarriers(runtimeDirectory());
  return await Promise.all(
    running.map(async (carrier) => ({
      pid: carrier.process.pid,
      port: carrier.port,
      instance: carrier.instance,
      key: carrier.key,
      memoryMiB: carrier.memoryMiB,
      startedAt: carrier.startedAt,
      users: countUsers(carrier.directory),
      sessions: await countSessions(carrier).catch(() => null),
    })),
  );
}

/** Ends carriers of other artefacts that nobody uses; those in use stay beside the new one. */
async function endIdle(carriers: readonly RunningCarrier[]): Promise<void> {
  for (const carrier of carriers) {
    if (await isUnused(carrier)) {
      await endCarrier(carrier);
    }
  }
}

/** One that does not answer is replaced, unless somebody uses it. */
async function isUsable(carrier: RunningCarrier): Promise<boolean> {
  try {
    await countSessions(carrier);
    return true;
  } catch (cause) {
    if (countUsers(carrier.directory) > 0) {
      throw new CoppiceError(`Carrier (process ${carrier.process.pid}) is in use and does not answer`, {
        code: "CARRIER_UNRESPONSIVE",
        faultDomain: "host",
        retryable: true,
        remedy: "Try again when the machine is less busy, or stop it: coppice host stop",
        cause,
      });
    }
    await endCarrier(carrier);
    return false;
  }
}

async function isUnused(carrier: RunningCarrier): Promise<boolean> {
  if (countUsers(carrier.directory) > 0) {
    return false;
  }
  // One that does not answer has no clients that get answers either.
  return (await countSessions(carrier).catch(() => 0)) === 0;
}

/** Sessions besides the one that asking takes. */
async function countSessions(carrier: RunningCarrier): Promise<number> {
  const endpoint = { host: "127.0.0.1", port: carrier.port };
  let connection: Connection | undefined;
  try {
    connection = await dial({ endpoint, token: carrier.token, timeoutMs: DEFAULTS.answerTimeoutMs });
    const reply = await connection.call("host.stats", {}, { deadlineMs: DEFAULTS.answerTimeoutMs });
    return Math.max(0, results.hostStats.parse(reply.result).sessions - 1);
  } finally {
    await connection?.close();
  }
}

function chooseIdleSeconds(requested?: number): number {
  const text = process.env["COPPICE_CARRIER_IDLE_SECONDS"];
  const value = requested ?? (text === undefined || text === "" ? DEFAULTS.idleSeconds : Number(text));
  if (!Number.isFinite(value) || value <= 0) {
    throw new CoppiceError(`Idle time of ${text ?? value} seconds is not possible`, {
      code: "INVALID_ARGUMENT",
      faultDomain: "user",
      remedy: "COPPICE_CARRIER_IDLE_SECONDS must be a number above 0.",
    });
  }
  return value;
}

class KeptCarrier implements Carrier {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly token: string;
  readonly pid: number;
  readonly started: boolean;
  readonly #carrier: RunningCarrier;
  #forget: (() => void) | undefined;

  /** With the lock held: nobody may stop it before it is known to be used. */
  constructor(carrier: RunningCarrier, started: boolean) {
    this.#carrier = carrier;
    this.port = carrier.port;
    this.token = carrier.token;
    this.pid = carrier.process.pid;
    this.started = started;
    this.#forget = addUser(carrier.directory);
  }

  async attachImage(id: string, path: string): Promise<{ readonly serial: string }> {
    const serial = serialOf(id);
    const node = `image-${serial}`;
    await qmp(
      qmpSocketOf(this.#carrier.directory),
      [
        { execute: "blockdev-add", arguments: readOnlyDrive(node, path), doneBefore: /Duplicate nodes/i },
        {
          execute: "device_add",
          arguments: { driver: "virtio-blk-pci", id: `disk-${serial}`, drive: node, serial },
          doneBefore: /Duplicate device ID/i,
        },
      ],
      DEFAULTS.qmpTimeoutMs,
    );
    return { serial };
  }

  console(): string {
    return readConsole(this.#carrier.directory, this.#carrier.instance);
  }

  async release(options: ReleaseOptions = {}): Promise<void> {
    const forget = this.#forget;
    if (forget === undefined) {
      return;
    }
    this.#forget = undefined;
    if (options.stopIfUnused !== true) {
      forget();
      return;
    }
    const lock = await lockSoon(lockPathOf(runtimeDirectory()));
    forget();
    // Without the lock somebody else is about to use this carrier, or one like it.
    if (lock !== undefined) {
      try {
        if (await isUnused(this.#carrier)) {
          await endCarrier(this.#carrier);
        }
      } finally {
        lock.release();
      }
    }
  }
}

/** Content ids are digests: 80 bits of them tell images apart as well as all. */
function serialOf(id: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(id)?.[1] ?? createHash("sha256").update(id).digest("hex");
  return hex.slice(0, DEFAULTS.serialChars);
}

async function lockSoon(path: string): Promise<FileLock | undefined> {
  return await lockFile(path, { signal: AbortSignal.timeout(DEFAULTS.releaseLockMs) }).catch(() => undefined);
}
