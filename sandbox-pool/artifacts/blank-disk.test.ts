import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { makeBlankDisk, readSparseArchive } from "./blank-disk.js";
import { requireTool } from "./tools.js";

const BLOCK_BYTES = 4096;

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "coppice-blank-"));
});

afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** The whole disk, as a guest sees it. */
function expand(blank: Uint8Array): Buffer {
  const file = Buffer.from(blank);
  const count = file.readUInt32LE(12);
  const disk = Buffer.alloc(Number(file.readBigUInt64LE(16)) * BLOCK_BYTES);
  const dataAt = file.length - count * BLOCK_BYTES;
  for (let index = 0; index < count; index += 1) {
    const at = dataAt + index * BLOCK_BYTES;
    file.copy(disk, file.readUInt32LE(24 + 4 * index) * BLOCK_BYTES, at, at + BLOCK_BYTES);
  }
  return disk;
}

describe("makeBlankDisk", () => {
  it("gives a file system that is whole and empty, small and without a journal", async () => {
    const blank = await makeBlankDisk(64);
    const disk = join(folder, "disk");
    writeFileSync(disk, expand(blank));
    execFileSync(requireTool("mke2fs").replace(/mke2fs$/, "e2fsck"), ["-fn", disk], { stdio: "pipe" });
    const image = readFileSync(disk);
    const hasJournal = image.readUInt32LE(1024 + 0x5c) & 4;
    expect([image.readUInt16LE(1024 + 0x38), hasJournal]).toEqual([0xef53, 0]);
    expect(blank.length).toBeLessThan(256 * 1024);
  });

  it("differs from one size to another in more than its length", async () => {
    const [one, other] = [await makeBlankDisk(16), await makeBlankDisk(17)];
    expect(Buffer.compare(one.subarray(0, 4 * BLOCK_BYTES), other.subarray(0, 4 * BLOCK_BYTES))).not.toBe(0);
  });

  it("that one caller gives up is made for the others all the same", async () => {
    const first = new AbortController();
    const makings = [makeBlankDisk(18, { signal: first.signal }), makeBlankDisk(18)] as const;
    first.abort();
    await expect(makings[0]).rejects.toMatchObject({ code: "ABORTED" });
    expect((await makings[1]).length).toBeGreaterThan(BLOCK_BYTES);
  });

  it("of 256 GiB is made without reading or sending gigabytes", async () => {
    const blank = await makeBlankDisk(256 * 1024);
    expect(blank.length).toBeLessThan(8 * 1024 * 1024);
  });
});

describe("readSparseArchive", () => {
  it.each([
    ["nothing", Buffer.alloc(0)],
    ["zeros", Buffer.alloc(10_240)],
    ["no archive", Buffer.alloc(10_240, "x")],
  ])("of %s is refused", (_, archive) => {
    expect(() => readSparseArchive(archive)).toThrow(expect.objectContaining({ code: "TOOL_FAILED" }));
  });
});
