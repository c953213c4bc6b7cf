/**
 * Directories that are built once and found by key.
 *
 * An entry is built beside its place and renamed into it, so nobody sees half of one. Its manifest has size and digest of
 * every file; they are compared before the entry is used, so a truncated or damaged one is built again.
 */

import { createHash } from "node:crypto";
import { type BigIntStats, createReadStream } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";

import { z } from "zod";

import { CoppiceError } from "../errors.js";
import { type LockOptions, tryLockFile, withFileLock } from "./lock.js";
import { throwIfAborted } from "./tools.js";

/** Says what each file of an entry must be. Written last, so its presence also says that the build was finished. */
const MANIFEST = "manifest.json";
/** What the files looked like when their digests were last compared. */
const STAMP = "verified.json";

const PARTIAL_PREFIX = ".partial-";
const LOCK_PREFIX = ".lock-";

const manifestSchema = z.object({
  files: z.record(z.string(), z.object({ size: z.number().int().nonnegative(), sha256: z.string() })),
  facts: z.record(z.string(), z.string()).optional(),
});

type Manifest = z.infer<typeof manifestSchema>;

export interface CacheEntryOptions {
  /** Directory of all entries of this kind. */
  readonly parent: string;
  readonly key: string;
  /** For messages, such as "image sha256:12…". */
  readonly title: string;
  /** Fills an empty directory. What it returns is kept in the manifest. */
  readonly build: (directory: string) => Promise<Readonly<Record<string, string>> | undefined>;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

export interface CacheEntry {
  readonly directory: string;
  readonly facts: Readonly<Record<string, string>>;
}

/** The entry for `key`, built if it is missing or damaged. Any number of processes may ask at once: one builds. */
export async function cached(options: CacheEntryOptions): Promise<CacheEntry> {
  const found = await openEntry(options.parent, options.key);
  if (found !== undefined) {
    return found;
  }
  const lockOptions: LockOptions = {
    signal: options.signal,
    onWait: () => options.onProgress?.(`waits for another process that makes ${options.title}`),
  };
  return await withFileLock(lockPath(options.parent, options.key), lockOptions, async () => {
    return (await openEntry(options.parent, options.key)) ?? (await buildEntry(options));
  });
}

/** An entry whose files are all what its manifest says, or undefined. */
export async function openEntry(parent: string, key: string): Promise<CacheEntry | undefined> {
  const directory = join(parent, key);
  const manifest = await readManifest(directory);
  if (manifest === undefined || !(await isIntact(directory, manifest))) {
    return undefined;
  }
  const now = new Date();
  // Pruning goes by last use. A read-only cache is no reason to fail.
  await utimes(join(directory, MANIFEST), now, now).catch(() => {});
  return { directory, facts: manifest.facts ?? {} };
}

/** Keys of what is there, last used first; damaged entries included. */
export async function listEntries(parent: string): Promise<readonly string[]> {
  const used: { key: string; at: number }[] = [];
  for (const key of await namesIn(parent)) {
    if (!key.startsWith(".")) {
      const at = await stat(join(parent, key, MANIFEST)).catch(() => undefined);
      used.push({ key, at: at?.mtimeMs ?? 0 });
    }
  }
  return used.sort((a, b) => b.at - a.at).map((entry) => entry.key);
}

export interface PruneOptions {
  /** Entries that stay whatever their age. */
  readonly keep: number;
  readonly maxAgeMs: number;
}

/** Removes entries that were not used for long, and what builders that died have left. */
export async function prune(parent: string, options: PruneOptions): Promise<void> {
  for (const name of await namesIn(parent)) {
    if (name.startsWith(PARTIAL_PREFIX)) {
      await removeUnlessLocked(parent, name.slice(PARTIAL_PREFIX.length), [name]);
    }
  }
  const oldest = Date.now() - options.maxAgeMs;
  for (const key of (await listEntries(parent)).slice(options.keep)) {
    const used = await stat(join(parent, key, MANIFEST)).catch(() => undefined);
    if (used === undefined || used.mtimeMs < oldest) {
      await removeUnlessLocked(parent, key, [key]);
    }
  }
}

export async function hashFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path, { highWaterMark: 1024 * 1024 }), hash);
  return hash.digest("hex");
}

/** A short key of anything that JSON can hold; equal values give equal keys whatever the order of their fields. */
export function contentKey(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex").slice(0, 32);
}

export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_name, item: unknown) =>
    typeof item === "object" && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}

async function buildEntry(options: CacheEntryOptions): Promise<CacheEntry> {
  const place = join(options.parent, options.key);
  const partial = join(options.parent, PARTIAL_PREFIX + options.key);
  if ((await stat(place).catch(() => undefined)) !== undefined) {
    options.onProgress?.(`${options.title} in the cache is damaged, makes it again`);
  }
  // Whoever had begun it before is dead: this process has the lock.
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true, mode: 0o755 });
  try {
    const facts = await options.build(partial);
    throwIfAborted(options.signal, `Making ${options.title}`);
    const files: Record<string, { size: number; sha256: string }> = {};
    for (const name of (await readdir(partial)).sort()) {
      const path = join(partial, name);
      files[name] = { size: (await stat(path)).size, sha256: await hashFile(path) };
    }
    const manifest: Manifest = { files, ...(facts === undefined ? {} : { facts }) };
    await writeFile(join(partial, MANIFEST), JSON.stringify(manifest, null, 1));
    await rm(place, { recursive: true, force: true });
    await rename(partial, place);
    await writeStamp(place, manifest);
    return { directory: place, facts: facts ?? {} };
  } catch (error) {
    await rm(partial, { recursive: true, force: true });
    throw diskFull(error, options.title) ?? error;
  }
}

function diskFull(error: unknown, title: string): CoppiceError | undefined {
  const code = (error as NodeJS.ErrnoException).code;
  if (code !== "ENOSPC" && code !== "EDQUOT") {
    return undefined;
  }
  return new CoppiceError(`Disk is full: no room for ${title}`, {
    code: "DISK_FULL",
    faultDomain: "host",
    remedy: "Free some space, or point XDG_CACHE_HOME to a larger disk.",
    cause: error,
  });
}

async function readManifest(directory: string): Promise<Manifest | undefined> {
  try {
    return manifestSchema.parse(JSON.parse(await readFile(join(directory, MANIFEST), "utf8")));
  } catch {
    return undefined;
  }
}

async function isIntact(directory: string, manifest: Manifest): Promise<boolean> {
  const looks = await look(directory, manifest);
  if (looks === undefined) {
    return false;
  }
  const stamp = await readFile(join(directory, STAMP), "utf8").catch(() => "");
  if (stamp === looks) {
    return true;
  }
  for (const [name, expected] of Object.entries(manifest.files)) {
    if ((await hashFile(join(directory, name)).catch(() => "")) !== expected.sha256) {
      return false;
    }
  }
  await writeFile(join(directory, STAMP), looks).catch(() => {});
  return true;
}

/** Any write to a file changes its ctime, which programs cannot set. */
async function look(directory: string, manifest: Manifest): Promise<string | undefined> {
  const lines: string[] = [];
  for (const [name, expected] of Object.entries(manifest.files)) {
    const now: BigIntStats | undefined = await stat(join(directory, name), { bigint: true }).catch(() => undefined);
    if (now === undefined || now.size !== BigInt(expected.size)) {
      return undefined;
    }
    lines.push(`${name} ${now.ino} ${now.mtimeNs} ${now.ctimeNs} ${expected.sha256}`);
  }
  return lines.join("\n");
}

async function writeStamp(directory: string, manifest: Manifest): Promise<void> {
  const looks = await look(directory, manifest);
  if (looks !== undefined) {
    await writeFile(join(directory, STAMP), looks);
  }
}

/** Under the key's lock, so that what is being built or opened by a builder stays. */
async function removeUnlessLocked(parent: string, key: string, names: readonly string[]): Promise<void> {
  const lock = await tryLockFile(lockPath(parent, key));
  if (lock === undefined) {
    return;
  }
  try {
    for (const name of names) {
      await rm(join(parent, name), { recursive: true, force: true });
    }
  } finally {
    lock.release();
  }
}

function lockPath(parent: string, key: string): string {
  return join(parent, LOCK_PREFIX + key);
}

async function namesIn(parent: string): Promise<readonly string[]> {
  return await readdir(parent).catch(() => []);
}
