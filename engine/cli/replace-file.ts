/** Files that come in pieces: each takes its place when all of it is there, and until then what was there stays. */

import { randomBytes } from "node:crypto";
import { constants, rmSync, type Stats } from "node:fs";
import { type FileHandle, lstat, open, rename } from "node:fs/promises";
import { dirname, join } from "node:path";

import { reasonOf } from "../errors.js";
import { outputFailed } from "./files.js";

const PERMISSION_BITS = 0o777;

/**
 * Writes `pieces` beside `path` and renames. A file that is replaced keeps its mode and owner, a new one gets `mode` as the
 * umask allows. Links and special files are not replaced. Whatever `pieces` throws is thrown on; nothing is left then.
 * Throws `OUTPUT_FAILED`.
 */
export async function replaceFile(path: string, pieces: AsyncIterable<Uint8Array>, mode: number): Promise<void> {
  // One that can't be looked at can't be written beside either, and that says why.
  const present = await lstat(path).catch(() => undefined);
  if (present !== undefined && !present.isFile()) throw outputFailed(path, "something that is no file is there");
  const temporary = join(dirname(path), `.coppice-${randomBytes(6).toString("hex")}.tmp`);
  const remove = (): void => rmSync(temporary, { force: true });
  // Also where a second Ctrl-C ends the process at once.
  process.on("exit", remove);
  try {
    await writeNew(temporary, { path, pieces, mode, present });
    await rename(temporary, path).catch((error: unknown) => {
      throw outputFailed(path, error);
    });
  } catch (error) {
    remove();
    throw error;
  } finally {
    process.off("exit", remove);
  }
}

interface Replacement {
  /** For messages: nobody has heard of the temporary file. */
  readonly path: string;
  readonly pieces: AsyncIterable<Uint8Array>;
  readonly mode: number;
  readonly present: Stats | undefined;
}

async function writeNew(temporary: string, { path, pieces, mode, present }: Replacement): Promise<void> {
  const failed = (error: unknown): never => {
    throw outputFailed(path, reasonOf(error).replaceAll(temporary, path));
  };
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const file = await open(temporary, flags, mode).catch(failed);
  try {
    for await (const piece of pieces) await file.writeFile(piece).catch(failed);
    if (present !== undefined) await dress(file, present).catch(failed);
  } finally {
    await file.close();
  }
}

async function dress(file: FileHandle, present: Stats): Promise<void> {
  const own = await file.stat();
  if (own.uid !== present.uid || own.gid !== present.gid) {
    // Only root may give files away; for others the file becomes theirs, as it does with an editor.
    await file.chown(present.uid, present.gid).catch(() => undefined);
  }
  await file.chmod(present.mode & PERMISSION_BITS);
}
