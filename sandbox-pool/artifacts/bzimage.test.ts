import { execFileSync } from "node:child_process";
import { gzipSync } from "node:zlib";

import { describe, expect, it } from "vitest";

import { extractVmlinux } from "./bzimage.js";

/** Large enough to take more than one length byte, with parts that repeat and parts that do not. */
const VMLINUX = Buffer.concat([
  Buffer.from("7f454c46", "hex"),
  Buffer.from(Array.from({ length: 1_000 }, (_, index) => (index * index) % 251)),
  Buffer.alloc(5_000, "ab"),
]);

interface Header {
  readonly magic?: string;
  readonly version?: number;
  readonly length?: number;
}

const SETUP_SECTORS = 3;
const GAP = 100;

function bzImage(payload: Buffer, header: Header = {}): Buffer {
  const start = (SETUP_SECTORS + 1) * 512;
  const setup = Buffer.alloc(start + GAP);
  setup.writeUInt8(SETUP_SECTORS, 0x1f1);
  setup.write(header.magic ?? "HdrS", 0x202, "latin1");
  setup.writeUInt16LE(header.version ?? 0x020f, 0x206);
  setup.writeUInt32LE(GAP, 0x248);
  setup.writeUInt32LE(header.length ?? payload.length, 0x24c);
  return Buffer.concat([setup, payload, Buffer.alloc(header.length === undefined ? 700 : 0)]);
}

/** As the kernel's build does for every format but gzip, which has the size at its end anyway. */
function withSize(stream: Buffer, size = VMLINUX.length): Buffer {
  const end = Buffer.alloc(4);
  end.writeUInt32LE(size);
  return Buffer.concat([stream, end]);
}

function pack(tool: "xz" | "zstd", data: Buffer): Buffer {
  return execFileSync(tool, tool === "xz" ? ["--check=crc32", "--stdout"] : ["--stdout", "--quiet"], { input: data });
}

function lz4Length(length: number): number[] {
  return [...Array.from({ length: Math.floor((length - 15) / 255) }, () => 255), (length - 15) % 255];
}

/** A frame of one block: literals, then a match that repeats the last two bytes, then nothing. */
function lz4(data: Buffer, repeated: number): Buffer {
  const literals = data.subarray(0, data.length - repeated);
  const block = Buffer.concat([
    Buffer.from([0xff, ...lz4Length(literals.length)]),
    literals,
    Buffer.from([2, 0, ...lz4Length(repeated - 4), 0]),
  ]);
  const start = Buffer.alloc(8);
  start.writeUInt32LE(0x184c2102, 0);
  start.writeUInt32LE(block.length, 4);
  return Buffer.concat([start, block]);
}

const COMPRESSED: readonly (readonly [string, Buffer])[] = [
  ["gzip", gzipSync(VMLINUX)],
  ["xz", withSize(pack("xz", VMLINUX))],
  ["zstd", withSize(pack("zstd", VMLINUX))],
  ["lz4", withSize(lz4(VMLINUX, 4_990))],
];

describe("a bzImage", () => {
  it.each(COMPRESSED)("with a payload in %s gives the ELF file in it", async (_name, payload) => {
    expect(Buffer.compare(await extractVmlinux(bzImage(payload)), VMLINUX)).toBe(0);
  });

  it.each(COMPRESSED)("with a payload in %s that lacks its middle is refused", async (_name, payload) => {
    const half = Buffer.concat([payload.subarray(0, payload.length / 2), payload.subarray(-4)]);
    await expect(extractVmlinux(bzImage(half))).rejects.toMatchObject({ code: "KERNEL_DAMAGED" });
  });

  it.each(COMPRESSED)("with a payload in %s that lacks its end is refused", async (_name, payload) => {
    const half = payload.subarray(0, payload.length - 40);
    await expect(extractVmlinux(bzImage(half))).rejects.toMatchObject({ code: "KERNEL_DAMAGED" });
  });

  it("whose payload is no ELF file is refused", async () => {
    const failure = extractVmlinux(bzImage(gzipSync(Buffer.alloc(4_096, "no ELF"))));
    await expect(failure).rejects.toMatchObject({
      code: "KERNEL_DAMAGED",
      message: expect.stringContaining("not an ELF"),
    });
  });

  it.each<[string, Buffer, string]>([
    ["an empty file", Buffer.alloc(0), "no setup header"],
    ["garbage", Buffer.alloc(10_000, "garbage"), "no setup header"],
    ["another magic", bzImage(gzipSync(VMLINUX), { magic: "Hdrs" }), "no setup header"],
    ["an old boot protocol", bzImage(gzipSync(VMLINUX), { version: 0x0207 }), "boot protocol 0x207"],
    ["a payload beyond the end", bzImage(gzipSync(VMLINUX), { length: 0xffff_ffff }), "ends after the file does"],
    ["a payload of unknown compression", bzImage(Buffer.from("BZh91AY&SY, made up")), "its compression is unknown"],
    ["an empty payload", bzImage(Buffer.alloc(0)), "its compression is unknown"],
    [
      "lz4 whose match leads before its start",
      bzImage(withSize(Buffer.from("02214c1804000000100109000000", "hex"))),
      "decompressed",
    ],
  ])("that is or has %s is refused with the reason", async (_what, image, reason) => {
    await expect(extractVmlinux(image)).rejects.toMatchObject({
      code: "KERNEL_DAMAGED",
      faultDomain: "host",
      message: expect.stringContaining(reason),
    });
  });
});
