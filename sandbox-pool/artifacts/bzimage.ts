/** Takes the ELF kernel out of a bzImage: a virtual machine monitor starts it directly, without unpacking it at each boot. */

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

import { CoppiceError } from "../errors.js";
import { decompressLz4Legacy, isLz4Legacy } from "./lz4.js";
import { run, type Tool, toolFailed } from "./tools.js";

/** Offsets in the setup header, see Linux `Documentation/x86/boot.rst`. */
const HEADER = Object.freeze({
  setupSectors: 0x1f1,
  magic: 0x202,
  version: 0x206,
  payloadOffset: 0x248,
  payloadLength: 0x24c,
});
/** `payload_offset` and `payload_length` are there from this version of the boot protocol on. */
const FIRST_VERSION_WITH_PAYLOAD = 0x0208;
const SECTOR_BYTES = 512;
/** A payload ends with the size of what is in it: gzip has that by itself, the kernel's build appends it to the others. */
const SIZE_BYTES = 4;

/** The decompressed ELF image. Throws `KERNEL_DAMAGED`. */
export async function extractVmlinux(bzImage: Buffer, signal?: AbortSignal): Promise<Buffer> {
  const payload = findPayload(bzImage);
  const vmlinux = await decompress(payload, signal);
  const expected = payload.length < SIZE_BYTES ? 0 : payload.readUInt32LE(payload.length - SIZE_BYTES);
  if (vmlinux.length !== expected) {
    throw damaged(`it holds ${vmlinux.length} bytes where it says ${expected}`);
  }
  if (vmlinux.length < 64 || vmlinux.readUInt32BE(0) !== 0x7f454c46) {
    throw damaged("what it carries is not an ELF file");
  }
  return vmlinux;
}

function findPayload(bzImage: Buffer): Buffer {
  if (bzImage.length < 0x260 || bzImage.toString("latin1", HEADER.magic, HEADER.magic + 4) !== "HdrS") {
    throw damaged("it has no setup header");
  }
  const version = bzImage.readUInt16LE(HEADER.version);
  if (version < FIRST_VERSION_WITH_PAYLOAD) {
    throw damaged(`boot protocol 0x${version.toString(16)} does not say where its payload is`);
  }
  const sectors = bzImage.readUInt8(HEADER.setupSectors) || 4;
  const start = (sectors + 1) * SECTOR_BYTES + bzImage.readUInt32LE(HEADER.payloadOffset);
  const end = start + bzImage.readUInt32LE(HEADER.payloadLength);
  if (end > bzImage.length) {
    throw damaged("its payload ends after the file does");
  }
  return bzImage.subarray(start, end);
}

async function decompress(payload: Buffer, signal: AbortSignal | undefined): Promise<Buffer> {
  const magic = payload.toString("hex", 0, 6);
  try {
    if (isLz4Legacy(payload)) {
      return decompressLz4Legacy(payload);
    }
    if (magic.startsWith("1f8b")) {
      return gunzipSync(payload);
    }
  } catch (cause) {
    throw damaged("its payload can't be decompressed", cause);
  }
  const stream = payload.subarray(0, -SIZE_BYTES);
  if (magic === "fd377a585a00") {
    return await decompressWith("xz", ["--decompress", "--stdout", "--single-stream"], stream, signal);
  }
  if (magic.startsWith("28b52ffd")) {
    return await decompressWith("zstd", ["--decompress", "--stdout", "--quiet"], stream, signal);
  }
  throw damaged(`its compression is unknown (starts with ${magic})`);
}

/** Through files, since a kernel is larger than what is kept of a program's output. */
async function decompressWith(
  tool: Tool,
  args: readonly string[],
  stream: Buffer,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  const directory = await mkdtemp(join(tmpdir(), "coppice-kernel-"));
  try {
    const input = join(directory, "payload");
    const output = join(directory, "vmlinux");
    await writeFile(input, stream);
    const result = await run(tool, [...args, input], { signal, stdoutFile: output });
    if (result.exitCode !== 0) {
      const failure = toolFailed(tool, result);
      throw failure.code === "DISK_FULL" ? failure : damaged("its payload can't be decompressed", failure);
    }
    return await readFile(output);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function damaged(what: string, cause?: unknown): CoppiceError {
  return new CoppiceError(`Kernel image can't be used: ${what}`, {
    code: "KERNEL_DAMAGED",
    faultDomain: "host",
    remedy: "Delete the kernel from the cache directory; it is fetched again.",
    cause,
  });
}
