/** Results in files: each there as a whole or not at all. */

import { existsSync } from "node:fs";
import { mkdir, open, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

import writeFileAtomic from "write-file-atomic";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { reasonOf } from "../errors.js";

export function outputFailed(path: string, cause: unknown): CoppiceError {
  return new CoppiceError(`${path} can not be written: ${reasonOf(cause)}`, {
    code: "OUTPUT_FAILED",
    faultDomain: "store",
    remedy: "Check that the place exists, can be written and has space left, or name another one.",
    cause,
  });
}

/** As `mkdir -p`. Node's own recursion never ends where a file system answers ENOENT to every mkdir, as /proc does. */
async function makeWithParents(path: string): Promise<void> {
  const parent = dirname(path);
  if (!existsSync(parent)) await makeWithParents(parent);
  try {
    await mkdir(path);
  } catch (error) {
    if (!existsSync(path) || !(await stat(path)).isDirectory()) throw error;
  }
}

export async function makeFolder(path: string): Promise<string> {
  const folder = resolve(path);
  try {
    await makeWithParents(folder);
    return folder;
  } catch (error) {
    throw outputFailed(path, error);
  }
}

export async function writeOutput(path: string, contents: string): Promise<void> {
  try {
    await writeFileAtomic(path, contents);
    // The rename itself is durable only when its directory is.
    await using directory = await open(dirname(path), "r");
    await directory.sync();
  } catch (error) {
    throw outputFailed(path, error);
  }
}
