/** Results in files: each there as a whole or not at all. */

import { mkdir, open } from "node:fs/promises";
import { dirname, resolve } from "node:path";

import writeFileAtomic from "write-file-atomic";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { reasonOf } from "../errors.js";

function outputFailed(path: string, cause: unknown): CoppiceError {
  return new CoppiceError(`${path} can not be written: ${reasonOf(cause)}`, {
    code: "OUTPUT_FAILED",
    faultDomain: "store",
    remedy: "Check that the place exists, can be written and has space left, or name another one.",
    cause,
  });
}

export async function makeFolder(path: string): Promise<string> {
  try {
    await mkdir(path, { recursive: true });
    return resolve(path);
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
