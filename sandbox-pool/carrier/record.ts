/**
 * What runs, as files: each carrier has a directory of its own below the runtime directory, with its record, its users,
 * its console and its sockets. Whoever changes the set of carriers holds the lock.
 */

import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { z } from "zod";

import { CoppiceError } from "../errors.js";
import { identifyProcess, isRunning, type ProcessIdentity } from "./process-identity.js";

const DIRECTORY_PREFIX = "carrier-";
const RECORD = "carrier.json";
const USERS = "users";

/** `sun_path` of unix(7), with its final zero. */
const MAX_SOCKET_PATH = 107;

const recordSchema = z.object({
  /** Of the keeper, whose end is the carrier's end. */
  process: z.object({ pid: z.number().int().positive(), started: z.string() }),
  /** Which artefacts it was started from. */
  key: z.string(),
  /** A machine may run several of the same kind: 0, 1, … */
  instance: z.number().int().nonnegative(),
  port: z.number().int().positive(),
  token: z.string(),
  memoryMiB: z.number().int().positive(),
  startedAt: z.string(),
});

export type CarrierRecord = z.infer<typeof recordSchema>;

export interface RunningCarrier extends CarrierRecord {
  readonly directory: string;
}

export function lockPathOf(runtime: string): string {
  return join(runtime, "carriers.lock");
}

/** An empty directory for a new carrier. */
export function makeCarrierDirectory(runtime: string): string {
  const directory = join(runtime, `${DIRECTORY_PREFIX}${randomBytes(4).toString("hex")}`);
  if (qmpSocketOf(directory).length > MAX_SOCKET_PATH) {
    throw new CoppiceError(`Runtime directory ${runtime} has too long a name for sockets`, {
      code: "RUNTIME_DIRECTORY_UNUSABLE",
      faultDomain: "user",
      remedy: "Set XDG_RUNTIME_DIR to a directory with a name of at most 70 characters.",
    });
  }
  mkdirSync(join(directory, USERS), { recursive: true, mode: 0o700 });
  return directory;
}

export function qmpSocketOf(directory: string): string {
  return join(directory, "qmp");
}

export function writeRecord(directory: string, record: CarrierRecord): void {
  const path = join(directory, RECORD);
  writeFileSync(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** Carriers whose keeper runs. */
export function listCarriers(runtime: string): readonly RunningCarrier[] {
  return carrierDirectories(runtime).flatMap((directory) => {
    const record = readRecord(directory);
    return record !== undefined && isRunning(record.process) ? [{ ...record, directory }] : [];
  });
}

/**
 * Removes what carriers left whose keeper was killed. With the lock held: a directory without a record then belongs to a
 * starter that died.
 */
export function removeStale(runtime: string): void {
  const alive = new Set(listCarriers(runtime).map((carrier) => carrier.directory));
  for (const directory of carrierDirectories(runtime)) {
    if (!alive.has(directory)) {
      rmSync(directory, { recursive: true, force: true });
    }
  }
}

/** Makes this process a user of the carrier, so that nobody stops it; gives the way to take that back. */
export function addUser(directory: string): () => void {
  const self = identifyProcess(process.pid);
  const path = join(directory, USERS, `${process.pid}-${randomBytes(4).toString("hex")}`);
  writeFileSync(path, JSON.stringify(self), { mode: 0o600 });
  return () => rmSync(path, { force: true });
}

/** How many users live; those that died without saying so do not count. */
export function countUsers(directory: string): number {
  const users = join(directory, USERS);
  if (!existsSync(users)) {
    return 0;
  }
  return readdirSync(users).filter((name) => {
    const identity = readJson(join(users, name)) as ProcessIdentity | undefined;
    return identity !== undefined && isRunning(identity);
  }).length;
}

function carrierDirectories(runtime: string): readonly string[] {
  const names = readdirSync(runtime).filter((name) => name.startsWith(DIRECTORY_PREFIX));
  return names.map((name) => join(runtime, name));
}

function readRecord(directory: string): CarrierRecord | undefined {
  const parsed = recordSchema.safeParse(readJson(join(directory, RECORD)));
  return parsed.success ? parsed.data : undefined;
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return undefined;
  }
}
