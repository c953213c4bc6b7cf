/** What a guest's writable disk holds at first: an empty ext4, as a file of its blocks that are not zero. */

import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { abortError, onAbort } from "../abort.js";
import { CoppiceError } from "../errors.js";
import { type RunOptions, runChecked } from "./tools.js";

const MIB_BYTES = 1024 * 1024;
const BLOCK_BYTES = 4096;

/** Of the file, see `native/coppice-wire/src/blank.rs`. */
const MAGIC = "coppdisk";
const VERSION = 1;
const HEADER_BYTES = 24;

/** Of tar archives: the unit, and where a header says how many bytes follow and what they are. */
const TAR_BLOCK_BYTES = 512;
const TAR_SIZE_AT = 124;
const TAR_KIND_AT = 156;

/**
 * No journal: nobody ever mounts a disk whose guest has ended, since disk and memory are kept or lost together. The list is
 * complete, so that the machine's configuration changes nothing.
 */
const FEATURES = [
  "none",
  "ext_attr",
  "dir_index",
  "filetype",
  "extent",
  "flex_bg",
  "sparse_super",
  "large_file",
  "huge_file",
  "uninit_bg",
  "dir_nlink",
  "extra_isize",
].join(",");

/** All that differs from one run of mke2fs to the next has a fixed value. */
const UUID = "c0991ce0-0000-4000-8000-000000000001";
const FIXED_TIME = "1";

const OPTIONS = [
  // Not written: what a disk has never been given reads as zeros.
  "lazy_itable_init=1",
  // All metadata at the beginning, where it shares the pages of the disk's map.
  "packed_meta_blocks=1",
  "root_owner=0:0",
  `hash_seed=${UUID}`,
].join(",");

const made = new Map<number, Promise<Uint8Array>>();

/**
 * The blank disk of a size, always the same bytes; made once a process, in some milliseconds. Throws as `run`. An abort ends
 * the wait of its caller only: others may wait for the same disk.
 */
export async function makeBlankDisk(sizeMiB: number, { signal }: Pick<RunOptions, "signal"> = {}): Promise<Uint8Array> {
  if (signal?.aborted === true) throw abortError("Making a blank disk", signal);
  let off = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    off = onAbort(signal, () => reject(abortError("Making a blank disk", signal)));
  });
  try {
    return await Promise.race([makeOnce(sizeMiB), aborted]);
  } finally {
    off();
  }
}

async function makeOnce(sizeMiB: number): Promise<Uint8Array> {
  const known = made.get(sizeMiB);
  if (known !== undefined) return await known;
  const making = make(sizeMiB);
  made.set(sizeMiB, making);
  making.catch(() => made.delete(sizeMiB));
  return await making;
}

async function make(sizeMiB: number): Promise<Uint8Array> {
  const directory = await mkdtemp(join(tmpdir(), "coppice-disk-"));
  try {
    const disk = join(directory, "disk");
    await writeFile(disk, "");
    await truncate(disk, sizeMiB * MIB_BYTES);
    await format(disk);
    // Finds what was written without reading gigabytes of nothing.
    const archive = join(directory, "archive");
    const args = ["--create", "--sparse", "--format=posix", "--sparse-version=1.0", `--directory=${directory}`, "disk"];
    await runChecked("tar", args, { stdoutFile: archive });
    return encode(sizeMiB, readSparseArchive(await readFile(archive)));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function format(path: string): Promise<void> {
  const args = [
    ...["-q", "-F", "-O", FEATURES, "-E", OPTIONS, "-U", UUID],
    ...["-b", `${BLOCK_BYTES}`, "-I", "256", "-i", "16384", "-m", "0"],
    path,
  ];
  const env = { E2FSPROGS_FAKE_TIME: FIXED_TIME, MKE2FS_CONFIG: "/dev/null" };
  await runChecked("mke2fs", args, { env });
}

/** A block of the disk that is not all zeros. */
interface Block {
  readonly place: number;
  readonly data: Uint8Array;
}

/**
 * Blocks of the one file in a tar archive, which has a map in front of the file's data: how many pieces there are, then where
 * each begins and how long it is, a number a line; see "Storing Sparse Files" in GNU tar's manual.
 */
export function readSparseArchive(archive: Buffer): readonly Block[] {
  const content = archive.subarray(contentStart(archive));
  let at = 0;
  const nextNumber = (): number => {
    const end = content.indexOf("\n", at);
    const value = Number(content.toString("latin1", at, end));
    if (end < 0 || !Number.isSafeInteger(value)) throw unreadable();
    at = end + 1;
    return value;
  };
  const pieces = Array.from({ length: nextNumber() }, () => ({ offset: nextNumber(), length: nextNumber() }));
  at = Math.ceil(at / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES;
  const blocks: Block[] = [];
  for (const { offset, length } of pieces) {
    if (offset % BLOCK_BYTES !== 0 || length % BLOCK_BYTES !== 0 || at + length > content.length) throw unreadable();
    for (let block = 0; block < length; block += BLOCK_BYTES) {
      const data = content.subarray(at + block, at + block + BLOCK_BYTES);
      if (data.some((byte) => byte !== 0)) blocks.push({ place: (offset + block) / BLOCK_BYTES, data });
    }
    at += length;
  }
  return blocks;
}

/** Behind the headers: those of extended attributes come first. */
function contentStart(archive: Buffer): number {
  let at = 0;
  while (at + TAR_BLOCK_BYTES <= archive.length) {
    const kind = String.fromCharCode(archive[at + TAR_KIND_AT] ?? 0);
    const bytes = Number.parseInt(archive.toString("latin1", at + TAR_SIZE_AT, at + TAR_SIZE_AT + 12), 8);
    at += TAR_BLOCK_BYTES;
    if (kind === "0") return at;
    at += Math.ceil(bytes / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES;
  }
  throw unreadable();
}

function unreadable(): CoppiceError {
  return new CoppiceError("The archive of a blank disk can't be read", {
    code: "TOOL_FAILED",
    faultDomain: "host",
    remedy: "Install GNU tar: apt-get install tar",
  });
}

function encode(sizeMiB: number, blocks: readonly Block[]): Uint8Array {
  const index = Buffer.alloc(Math.ceil((HEADER_BYTES + 4 * blocks.length) / BLOCK_BYTES) * BLOCK_BYTES);
  index.write(MAGIC, "latin1");
  index.writeUInt32LE(VERSION, 8);
  index.writeUInt32LE(blocks.length, 12);
  index.writeBigUInt64LE(BigInt((sizeMiB * MIB_BYTES) / BLOCK_BYTES), 16);
  blocks.forEach(({ place }, number) => {
    index.writeUInt32LE(place, HEADER_BYTES + 4 * number);
  });
  return Buffer.concat([index, ...blocks.map((block) => block.data)]);
}
