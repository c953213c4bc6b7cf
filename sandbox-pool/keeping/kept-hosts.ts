/**
 * Hosts of this user and machine: found or started, shared by all processes, ended when unused.
 *
 * One lock a kind guards the set. A process that uses a host says so in a file beside it, so that another one that has just
 * ended its work does not stop it.
 */

import { type FileLock, lockFile, withFileLock } from "../artifacts/lock.js";
import type { Connection } from "../client/connection.js";
import { type DialOptions, dial, dialWhenFree, isTurnedAway } from "../client/handshake.js";
import { results } from "../client/messages.js";
import { CoppiceError } from "../errors.js";
import { DEFAULTS } from "./defaults.js";
import { endHost } from "./end.js";
import { type LaunchOptions, launchHost } from "./launch.js";
import {
  addUser,
  countUsers,
  type HostKind,
  type HostRecord,
  isKept,
  listHosts,
  lockPathOf,
  markKept,
  type RunningHost,
  removeStale,
} from "./record.js";
import { runtimeDirectory } from "./runtime-directory.js";

export interface EnsureOptions extends Omit<LaunchOptions, "runtime"> {
  /** Which artefacts it must have been started from. */
  readonly key: string;
  readonly onProgress?: ((message: string) => void) | undefined;
  /** Said before a start. */
  readonly startMessage: string;
  /** It was asked for on purpose: its last user does not end it, only its idle time does, or `stopHosts`. Default: false. */
  readonly keep?: boolean | undefined;
}

export interface ReleaseOptions {
  /**
   * Ends the host at once unless somebody else uses it or it was started on purpose. Default: it ends by itself when it was
   * unused for a while.
   */
  readonly stopIfUnused?: boolean;
}

/** This process's use of a host. */
export interface Hold {
  readonly host: RunningHost;
  /** Whether this call has started it; otherwise it ran already. */
  readonly started: boolean;
  /** Twice is a no-op. */
  release(options?: ReleaseOptions): Promise<void>;
}

export interface HostStatus extends Omit<HostRecord, "process" | "token"> {
  readonly pid: number;
  readonly users: number;
  /** Sessions that its daemon counts; null where it does not answer, or is full. */
  readonly sessions: number | null;
  /** It runs, and takes no more connections now. */
  readonly isFull: boolean;
}

/** Finds the running host of these artefacts, or starts one. Idle hosts of other artefacts are ended. */
export async function ensureHost(options: EnsureOptions): Promise<Hold> {
  const { kind, key, instance } = options;
  const runtime = runtimeDirectory();
  const lockOptions = {
    signal: options.signal,
    onWait: () => options.onProgress?.("waits for another process that starts the host"),
  };
  return await withFileLock(lockPathOf(runtime, kind), lockOptions, async () => {
    removeStale(runtime, kind);
    const running = listHosts(runtime, kind);
    const own = running.find((host) => host.key === key && host.instance === instance);
    if (own !== undefined && (await isUsable(own))) {
      return hold(own, { started: false, keep: options.keep });
    }
    for (const host of running.filter((other) => other.key !== key)) {
      if (await isUnused(host)) {
        await endHost(host);
      }
    }
    options.onProgress?.(options.startMessage);
    return hold(await launchHost({ ...options, runtime }), { started: true, keep: options.keep });
  });
}

/** Ends all hosts of a kind, whoever uses them. Gives how many there were. */
export async function stopHosts(kind: HostKind, signal?: AbortSignal): Promise<number> {
  const runtime = runtimeDirectory();
  return await withFileLock(lockPathOf(runtime, kind), { signal }, async () => {
    const running = listHosts(runtime, kind);
    await Promise.all(running.map(endHost));
    removeStale(runtime, kind);
    return running.length;
  });
}

export async function hostStatus(kind: HostKind): Promise<readonly HostStatus[]> {
  return await Promise.all(
    listHosts(runtimeDirectory(), kind).map(async (host) => {
      const { process: keeper, token: _secret, directory, ...record } = host;
      const asked = await countSessions(host, dial).catch(isTurnedAway);
      const answer = typeof asked === "number" ? { sessions: asked, isFull: false } : { sessions: null, isFull: asked };
      return { ...record, pid: keeper.pid, users: countUsers(directory), ...answer };
    }),
  );
}

/** One that does not answer is replaced, unless somebody uses it. */
async function isUsable(host: RunningHost): Promise<boolean> {
  try {
    await countSessions(host);
    return true;
  } catch (cause) {
    if (isTurnedAway(cause)) throw full(host, cause);
    if (countUsers(host.directory) > 0) {
      throw new CoppiceError(`Host (process ${host.process.pid}) is in use and does not answer`, {
        code: "HOST_UNRESPONSIVE",
        faultDomain: "host",
        retryable: true,
        remedy: "Try again when the machine is less busy, or stop it: coppice host stop",
        cause,
      });
    }
    await endHost(host);
    return false;
  }
}

async function isUnused(host: RunningHost): Promise<boolean> {
  if (countUsers(host.directory) > 0) {
    return false;
  }
  // One that does not answer has no clients that get answers either; one that is full has some.
  return (await countSessions(host, dial).catch((error: unknown) => (isTurnedAway(error) ? 1 : 0))) === 0;
}

function full(host: RunningHost, cause: unknown): CoppiceError {
  return new CoppiceError(`Host (process ${host.process.pid}) is full: it has as many connections as it takes`, {
    code: "TOO_MANY_CONNECTIONS",
    faultDomain: "host",
    retryable: true,
    remedy: "Try again in a moment, or end programs that use the host: `coppice host status` counts them.",
    cause,
  });
}

/** Sessions besides the one that asking takes. */
async function countSessions(
  host: RunningHost,
  connect: (options: DialOptions) => Promise<Connection> = dialWhenFree,
): Promise<number> {
  const { endpoint, token } = host;
  let connection: Connection | undefined;
  try {
    connection = await connect({ endpoint, token, timeoutMs: DEFAULTS.answerTimeoutMs });
    const reply = await connection.call("host.stats", {}, { deadlineMs: DEFAULTS.answerTimeoutMs });
    return Math.max(0, results.hostStats.parse(reply.result).sessions - 1);
  } finally {
    await connection?.close();
  }
}

/** With the lock held: nobody may stop the host before it is known to be used. */
function hold(host: RunningHost, { started, keep }: { started: boolean; keep: boolean | undefined }): Hold {
  if (keep === true) markKept(host.directory);
  let forget: (() => void) | undefined = addUser(host.directory);
  return {
    host,
    started,
    release: async (options = {}) => {
      const forgetOnce = forget;
      forget = undefined;
      if (forgetOnce !== undefined) {
        await release(host, forgetOnce, options);
      }
    },
  };
}

async function release(host: RunningHost, forget: () => void, options: ReleaseOptions): Promise<void> {
  if (options.stopIfUnused !== true) {
    forget();
    return;
  }
  const lock = await lockSoon(lockPathOf(runtimeDirectory(), host.kind));
  forget();
  if (lock === undefined) {
    // Somebody is about to use this host, or one like it.
    return;
  }
  try {
    if (!isKept(host.directory) && (await isUnused(host))) {
      await endHost(host);
    }
  } finally {
    lock.release();
  }
}

async function lockSoon(path: string): Promise<FileLock | undefined> {
  return await lockFile(path, { signal: AbortSignal.timeout(DEFAULTS.releaseLockMs) }).catch(() => undefined);
}
