/**
 * Locks between processes that the kernel releases when their holder dies, however it dies.
 *
 * Node has no flock(2), but a lock belongs to the open file description: the `flock` program locks a descriptor that it
 * inherits, ends, and the lock stays until this process closes the file.
 */

import { spawn } from "node:child_process";
import { closeSync, fstatSync, mkdirSync, openSync, statSync, unlinkSync } from "node:fs";
import { dirname } from "node:path";

import { CoppiceError } from "../errors.js";
import { requireTool, throwIfAborted } from "./tools.js";

/** Exit code of `flock --nonblock` where somebody else has the lock. */
const FLOCK_CONFLICT = 1;

export interface FileLock {
  /** Deletes the file and gives the lock back. Twice is a no-op. */
  release(): void;
}

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once when somebody else has the lock, before waiting for it. */
  readonly onWait?: () => void;
}

/** Waits for the lock. */
export async function lockFile(path: string, options: LockOptions = {}): Promise<FileLock> {
  let waited = false;
  for (;;) {
    throwIfAborted(options.signal, "Waiting for a lock");
    const fd = open(path);
    try {
      if (!(await flock(fd, ["--nonblock"], options.signal))) {
        if (!waited) options.onWait?.();
        waited = true;
        await flock(fd, [], options.signal);
      }
    } catch (error) {
      closeSync(fd);
      throw error;
    }
    // The last holder deleted the file while this process waited: the lock is on a file that nobody else can find.
    if (isStillAt(fd, path)) {
      return new HeldLock(fd, path);
    }
    closeSync(fd);
  }
}

/** The lock, or undefined where somebody else has it. */
export async function tryLockFile(path: string): Promise<FileLock | undefined> {
  const fd = open(path);
  let held = false;
  try {
    held = (await flock(fd, ["--nonblock"], undefined)) && isStillAt(fd, path);
  } finally {
    if (!held) closeSync(fd);
  }
  return held ? new HeldLock(fd, path) : undefined;
}

export async function withFileLock<T>(path: string, options: LockOptions, body: () => Promise<T>): Promise<T> {
  const lock = await lockFile(path, options);
  try {
    return await body();
  } finally {
    lock.release();
  }
}

function open(path: string): number {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  return openSync(path, "a", 0o600);
}

function isStillAt(fd: number, path: string): boolean {
  try {
    const now = statSync(path);
    const held = fstatSync(fd);
    return now.ino === held.ino && now.dev === held.dev;
  } catch {
    return false;
  }
}

async function flock(fd: number, args: readonly string[], signal: AbortSignal | undefined): Promise<boolean> {
  // Listeners for "abort" are not called when it has happened before.
  throwIfAborted(signal, "Waiting for a lock");
  const child = spawn(requireTool("flock"), [...args, "--exclusive", "3"], { stdio: ["ignore", "ignore", "pipe", fd] });
  const onAbort = () => child.kill("SIGKILL");
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    let message = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      message = (message + text).slice(0, 1_000);
    });
    const exitCode = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    throwIfAborted(signal, "Waiting for a lock");
    if (exitCode === 0) {
      return true;
    }
    if (exitCode === FLOCK_CONFLICT && args.length > 0) {
      return false;
    }
    throw new CoppiceError(`Lock can't be had: ${message.trim() || `flock ended with ${exitCode}`}`, {
      code: "LOCK_FAILED",
      faultDomain: "host",
      remedy: "The cache and runtime directories must be on a file system with locks, such as a local disk.",
    });
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}

class HeldLock implements FileLock {
  readonly #path: string;
  #fd: number | undefined;

  constructor(fd: number, path: string) {
    this.#fd = fd;
    this.#path = path;
  }

  release(): void {
    if (this.#fd === undefined) {
      return;
    }
    // Deleted while it is still held: whoever waits finds that out and takes a new one.
    if (isStillAt(this.#fd, this.#path)) {
      unlinkSync(this.#path);
    }
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}
