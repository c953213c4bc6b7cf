/**
 * The hosts that run, as files: each has a directory of its own below the runtime directory, with its record, its users,
 * its console and its sockets. Whoever changes the set of hosts of a kind holds the kind's lock.
 */

import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { z } from "zod";

import { CoppiceError } from "../errors.js";
import { identifyProcess, isRunning } from "./process-identity.js";

export type HostKind = "carrier" | "kvm";

const RECORD = "host.json";
const USERS = "users";
const KEPT = "kept";

/** `sun_path` of unix(7), with its final zero. */
const MAX_SOCKET_PATH = 107;
const LONGEST_SOCKET_NAME = "host.sock";

const identitySchema = z.object({ pid: z.number().int().positive(), started: z.string() });

const recordSchema = z.object({
  kind: z.enum(["carrier", "kvm"]),
  /** Of the keeper, whose end is the host's end. */
  process: identitySchema,
  /** Which artefacts it was started from. */
  key: z.string(),
  /** A machine may run several of the same: 0, 1, … */
  instance: z.number().int().nonnegative(),
  endpoint: z.union([
    z.object({ unix: z.string() }),
    z.object({ host: z.string(), port: z.number().int().positive() }),
  ]),
  token: z.string().optional(),
  memoryMiB: z.number().int().positive().optional(),
  startedAt: z.string(),
});

export type HostRecord = z.infer<typeof recordSchema>;

export interface RunningHost extends HostRecord {
  readonly directory: string;
}

export function lockPathOf(runtime: string, kind: HostKind): string {
  return join(runtime, `${kind}.lock`);
}

/** An empty directory for a new host. */
export function makeHostDirectory(runtime: string, kind: HostKind): string {
  const directory = join(runtime, `${kind}-${randomBytes(4).toString("hex")}`);
  if (join(directory, LONGEST_SOCKET_NAME).length > MAX_SOCKET_PATH) {
    throw new CoppiceError(`Runtime directory ${runtime} has too long a name for sockets`, {
      code: "RUNTIME_DIRECTORY_UNUSABLE",
      faultDomain: "user",
      remedy: "Set XDG_RUNTIME_DIR to a directory with a name of at most 70 characters.",
    });
  }
  mkdirSync(join(directory, USERS), { recursive: true, mode: 0o700 });
  return directory;
}

export function writeRecord(directory: string, record: HostRecord): void {
  const path = join(directory, RECORD);
  writeFileSync(`${path}.new`, JSON.stringify(record), { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** Hosts whose keeper runs. */
export function listHosts(runtime: string, kind: HostKind): readonly RunningHost[] {
  return hostDirectories(runtime, kind).flatMap((directory) => {
    const record = readRecord(directory);
    return record !== undefined && isRunning(record.process) ? [{ ...record, directory }] : [];
  });
}

/**
 * Removes what hosts left whose keeper was killed. With the lock held: a directory without a record then belongs to a
 * starter that died, and the keeper that it may have started ends by itself.
 */
export function removeStale(runtime: string, kind: HostKind): void {
  const alive = new Set(listHosts(runtime, kind).map((host) => host.directory));
  for (const directory of hostDirectories(runtime, kind)) {
    if (!alive.has(directory)) {
      rmSync(directory, { recursive: true, force: true });
    }
  }
}

/** Makes this process a user of the host, so that nobody stops it; gives the way to take that back. */
export function addUser(directory: string): () => void {
  const self = identifyProcess(process.pid);
  const path = join(directory, USERS, `${process.pid}-${randomBytes(4).toString("hex")}`);
  writeFileSync(path, JSON.stringify(self), { mode: 0o600 });
  return () => rmSync(path, { force: true });
}

/** Says that somebody wants it to run on while nobody uses it. */
export function markKept(directory: string): void {
  writeFileSync(join(directory, KEPT), "", { mode: 0o600 });
}

export function isKept(directory: string): boolean {
  return existsSync(join(directory, KEPT));
}

/** How many users live; those that died without saying so do not count. */
export function countUsers(directory: string): number {
  const users = join(directory, USERS);
  if (!existsSync(users)) {
    return 0;
  }
  return readdirSync(users).filter((name) => {
    const identity = identitySchema.safeParse(readJson(join(users, name)));
    return identity.success && isRunning(identity.data);
  }).length;
}

function hostDirectories(runtime: string, kind: HostKind): readonly string[] {
  const name = new RegExp(`^${kind}-[0-9a-f]{8}$`);
  return readdirSync(runtime)
    .filter((entry) => name.test(entry))
    .map((entry) => join(runtime, entry));
}

function readRecord(directory: string): HostRecord | undefined {
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
