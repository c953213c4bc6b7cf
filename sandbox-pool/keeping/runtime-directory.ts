/** The user's private directory for sockets and the state of what runs. */

import { chmodSync, lstatSync, mkdirSync } from "node:fs";
import { isAbsolute, join } from "node:path";

import { CoppiceError } from "../errors.js";

/** Directory with mode 0700 that belongs to this user; made when missing. Throws `RUNTIME_DIRECTORY_UNUSABLE`. */
export function runtimeDirectory(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const base = env["XDG_RUNTIME_DIR"];
  const directory =
    base !== undefined && isAbsolute(base) ? join(base, "coppice") : `/tmp/coppice-${process.getuid?.() ?? 0}`;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw unusable(directory, "it can't be made", cause);
  }
  const found = lstatSync(directory);
  if (!found.isDirectory()) {
    throw unusable(directory, "it is not a directory");
  }
  // /tmp is everybody's: whoever makes the directory first could read the tokens in it.
  if (found.uid !== process.getuid?.()) {
    throw unusable(directory, `it belongs to user ${found.uid}`);
  }
  if ((found.mode & 0o077) !== 0) {
    chmodSync(directory, 0o700);
  }
  return directory;
}

function unusable(directory: string, what: string, cause?: unknown): CoppiceError {
  return new CoppiceError(`Runtime directory ${directory} can't be used: ${what}`, {
    code: "RUNTIME_DIRECTORY_UNUSABLE",
    faultDomain: "user",
    remedy: "Set XDG_RUNTIME_DIR to a directory of your own with mode 0700.",
    cause,
  });
}
