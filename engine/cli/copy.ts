/**
 * Trees of files between this machine and a guest, entry by entry. What a guest names is hostile: an entry's name is one name,
 * and nothing is ever written through a link.
 */

import { createReadStream, type Stats } from "node:fs";
import { lstat, mkdir, readdir, readlink, stat, symlink } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";

import { CoppiceError, type FileKind, type FileStat, type SandboxFiles } from "../../sandbox-pool/index.js";
import { reasonOf } from "../errors.js";
import { outputFailed } from "./files.js";
import { replaceFile } from "./replace-file.js";

export interface CopyWork {
  readonly files: SandboxFiles;
  readonly signal: AbortSignal;
}

export interface CopyReport {
  files: number;
  directories: number;
  links: number;
  bytes: number;
  /** Sockets, devices and the like below a directory: not copied. */
  readonly skipped: { readonly path: string; readonly kind: FileKind }[];
}

const PERMISSION_BITS = 0o777;

/** A file may grow while it is copied, and those of /proc say that they are empty. Beyond it a guest just never ends. */
const GROWTH_BYTES = 64 * 1024 * 1024;

function emptyReport(): CopyReport {
  return { files: 0, directories: 0, links: 0, bytes: 0, skipped: [] };
}

/** From here into the guest. Throws `INVALID_ARGUMENT` where `from` is nothing that can be copied. */
export async function copyIn(work: CopyWork, from: string, to: string): Promise<CopyReport> {
  const report = emptyReport();
  const source = resolve(from);
  checkKind(source, kindOf(await lookAt(source)));
  const target = (await isGuestDirectory(work, to)) ? posix.join(to, basename(source)) : to;
  await putEntry(work, source, target, report);
  return report;
}

async function putEntry(work: CopyWork, from: string, to: string, report: CopyReport): Promise<void> {
  const { files, signal } = work;
  const found = await lookAt(from);
  if (found.isDirectory()) {
    await files.mkdir(to, { signal });
    report.directories += 1;
    for (const name of await readdir(from)) await putEntry(work, join(from, name), posix.join(to, name), report);
  } else if (found.isSymbolicLink()) {
    await files.symlink(await readlink(from), to, { signal });
    report.links += 1;
  } else if (found.isFile()) {
    await files.writeStream(to, contentsOf(from), { mode: found.mode & PERMISSION_BITS, signal });
    report.files += 1;
    report.bytes += found.size;
  } else {
    report.skipped.push({ path: from, kind: kindOf(found) });
  }
}

async function lookAt(path: string): Promise<Stats> {
  return await lstat(path).catch((error: unknown) => {
    throw unreadable(path, error);
  });
}

function kindOf(found: Stats): FileKind {
  if (found.isFile()) return "file";
  if (found.isDirectory()) return "directory";
  if (found.isSymbolicLink()) return "symlink";
  if (found.isFIFO()) return "fifo";
  if (found.isSocket()) return "socket";
  return found.isBlockDevice() ? "block" : "character";
}

const COPIED: readonly FileKind[] = ["file", "directory", "symlink"];
const SPECIAL_NAMES: Readonly<Partial<Record<FileKind, string>>> = {
  fifo: "a named pipe",
  socket: "a socket",
  block: "a block device",
  character: "a character device",
};

/** As people call it. */
export function nameOfKind(kind: FileKind): string {
  return SPECIAL_NAMES[kind] ?? `a ${kind}`;
}

/** What was asked for by name must not be left out without a word. */
function checkKind(path: string, kind: FileKind): void {
  if (COPIED.includes(kind)) return;
  throw new CoppiceError(`${path} is ${nameOfKind(kind)}, which can't be copied`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "Name a file, a directory or a link; what a pipe or device gives can be had with `coppice exec … -- cat`.",
  });
}

/** Opened when it is asked for, so that nothing is left open where the guest refuses the file. */
async function* contentsOf(path: string): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(path) as AsyncIterable<Uint8Array>;
  } catch (error) {
    throw unreadable(path, error);
  }
}

async function isGuestDirectory({ files, signal }: CopyWork, path: string): Promise<boolean> {
  try {
    // A link to a directory is one for whoever copies into it; the dot looks through it.
    return (await files.stat(`${path.replace(/\/+$/, "")}/.`, { signal })).kind === "directory";
  } catch (error) {
    if (error instanceof CoppiceError && ["FILE_NOT_FOUND", "FILE_WRONG_KIND"].includes(error.code)) return false;
    throw error;
  }
}

/** From the guest to here. Throws as `copyIn`. */
export async function copyOut(work: CopyWork, from: string, to: string): Promise<CopyReport> {
  const report = emptyReport();
  const source = posix.normalize(from);
  const isInto = await stat(to).then(
    (found) => found.isDirectory(),
    () => false,
  );
  const name = posix.basename(source);
  checkKind(source, (await work.files.stat(source, { signal: work.signal })).kind);
  if (isInto && name === "") throw outputFailed(to, "name a directory that does not exist to copy / into");
  await takeEntry(work, source, isInto ? join(to, name) : to, report);
  return report;
}

async function takeEntry(work: CopyWork, from: string, to: string, report: CopyReport): Promise<void> {
  const { files, signal } = work;
  const found = await files.stat(from, { signal });
  switch (found.kind) {
    case "directory":
      await makeDirectory(to);
      report.directories += 1;
      for (const { name } of await files.list(from, { signal })) {
        checkName(from, name);
        await takeEntry(work, posix.join(from, name), join(to, name), report);
      }
      break;
    case "symlink":
      await symlink(await files.readlink(from, { signal }), to).catch((error: unknown) => {
        throw outputFailed(to, error);
      });
      report.links += 1;
      break;
    case "file":
      report.bytes += await takeFile(work, { from, to, found });
      report.files += 1;
      break;
    default:
      report.skipped.push({ path: from, kind: found.kind });
  }
}

interface TakenFile {
  readonly from: string;
  readonly to: string;
  readonly found: FileStat;
}

async function takeFile({ files, signal }: CopyWork, { from, to, found }: TakenFile): Promise<number> {
  let bytes = 0;
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for await (const piece of files.readStream(from, { signal })) {
      bytes += piece.length;
      if (bytes > found.size + GROWTH_BYTES) throw endless(from, found.size);
      yield piece;
    }
  }
  await replaceFile(to, pieces(), found.mode & PERMISSION_BITS);
  return bytes;
}

async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    const found = await lstat(path).catch(() => undefined);
    if (found?.isDirectory() !== true) throw outputFailed(path, error);
  }
}

function checkName(directory: string, name: string): void {
  if (name !== "" && name !== "." && name !== ".." && !name.includes("/") && !name.includes("\0")) return;
  throw new CoppiceError(`Guest names an entry of ${directory} that can't be one`, {
    code: "GUEST_MISBEHAVED",
    faultDomain: "guest",
    remedy: "Copy nothing from this sandbox: its guest is hostile or broken.",
  });
}

function endless(path: string, size: number): CoppiceError {
  return new CoppiceError(`${path} gives far more than the ${size} bytes that it was said to have`, {
    code: "GUEST_MISBEHAVED",
    faultDomain: "guest",
    remedy: "Copy a file that is still written to when it is complete; from a guest that lies copy nothing.",
  });
}

function unreadable(path: string, cause: unknown): CoppiceError {
  return new CoppiceError(`${path} can not be read: ${reasonOf(cause)}`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "Name something that exists and may be read.",
    cause,
  });
}
