// The user's cache: what is built once, by content, and shared by every clone.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync } from "node:fs";
import { homedir } from "node:os";
import { join, relative } from "node:path";

/** Builds kept of each kind; older ones are removed. */
const KEPT = 4;

export function cacheDirectory(...parts) {
  const base = process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
  return join(base, "coppice", ...parts);
}

/** Every file below `directory` but those in `skip`, sorted, so that a hash of them is stable. */
export function filesBelow(directory, skip = []) {
  const found = [];
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (skip.includes(entry.name)) continue;
    const path = join(directory, entry.name);
    if (entry.isDirectory()) found.push(...filesBelow(path, skip));
    else if (entry.isFile()) found.push(path);
  }
  return found.sort();
}

/** Hash of names and contents of files, and of `more`: 16 hexadecimal digits are enough to tell builds apart. */
export function contentKey(root, files, more = []) {
  const hash = createHash("sha256");
  for (const word of more) hash.update(`${word}\0`);
  for (const file of files)
    hash
      .update(`${relative(root, file)}\0`)
      .update(readFileSync(file))
      .update("\0");
  return hash.digest("hex").slice(0, 16);
}

/** Marks `directory` as used now and removes the builds beside it that have not been used for longest. */
export function keepRecent(directory, parent) {
  const now = new Date();
  utimesSync(directory, now, now);
  mkdirSync(parent, { recursive: true });
  const others = readdirSync(parent)
    .filter((name) => !name.includes(".partial"))
    .map((name) => ({ path: join(parent, name), used: statSync(join(parent, name)).mtimeMs }))
    .sort((left, right) => right.used - left.used);
  for (const { path } of others.slice(KEPT)) rmSync(path, { recursive: true, force: true });
}
