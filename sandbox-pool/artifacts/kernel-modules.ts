/** Which module files a kernel needs for what it has to do, and in which order, from the modules' own `.modinfo`. */

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

import { CoppiceError } from "../errors.js";

export interface KernelModule {
  /** With underscores, as the kernel has it. */
  readonly name: string;
  /** Below the modules directory. */
  readonly path: string;
}

/**
 * The files for `wanted` in load order: what a module depends on comes before it. Modules that are built into the kernel
 * are left out. Throws `KERNEL_MODULE_MISSING`.
 */
export async function resolveModules(directory: string, wanted: readonly string[]): Promise<readonly KernelModule[]> {
  const files = await indexModules(directory);
  const builtin = await builtinModules(directory);
  const order = new Map<string, KernelModule>();
  const visit = async (name: string): Promise<void> => {
    if (builtin.has(name) || order.has(name)) {
      return;
    }
    const path = files.get(name);
    if (path === undefined) {
      throw new CoppiceError(`Kernel has no module \`${name}\``, {
        code: "KERNEL_MODULE_MISSING",
        faultDomain: "host",
        remedy: "Use Debian's cloud kernel: delete the kernels in the cache directory, it is fetched again.",
      });
    }
    for (const dependency of moduleDependencies(await readFile(join(directory, path)))) {
      await visit(dependency);
    }
    order.set(name, { name, path });
  };
  for (const name of wanted) {
    await visit(normalise(name));
  }
  return [...order.values()];
}

/** Names in the `depends=` entry of a module's `.modinfo` section. */
export function moduleDependencies(elf: Buffer): readonly string[] {
  const prefix = "depends=";
  const entries = modinfoSection(elf).toString("latin1").split("\0");
  const line = entries.find((entry) => entry.startsWith(prefix));
  return (line ?? prefix).slice(prefix.length).split(",").filter(Boolean).map(normalise);
}

/** Section headers of a 64-bit little-endian ELF file, see elf(5). */
function modinfoSection(elf: Buffer): Buffer {
  if (elf.length < 64 || elf.readUInt32BE(0) !== 0x7f454c46) {
    throw new CoppiceError("Kernel module is not an ELF file", {
      code: "KERNEL_DAMAGED",
      faultDomain: "host",
      remedy: "Delete the kernel from the cache directory; it is fetched again.",
    });
  }
  const tableAt = Number(elf.readBigUInt64LE(0x28));
  const entryBytes = elf.readUInt16LE(0x3a);
  const count = elf.readUInt16LE(0x3c);
  const section = (index: number) => {
    const at = tableAt + index * entryBytes;
    const offset = Number(elf.readBigUInt64LE(at + 0x18));
    return {
      nameAt: elf.readUInt32LE(at),
      data: elf.subarray(offset, offset + Number(elf.readBigUInt64LE(at + 0x20))),
    };
  };
  const names = section(elf.readUInt16LE(0x3e)).data;
  for (let index = 0; index < count; index++) {
    const { nameAt, data } = section(index);
    if (names.toString("latin1", nameAt, names.indexOf(0, nameAt)) === ".modinfo") {
      return data;
    }
  }
  return Buffer.alloc(0);
}

async function indexModules(directory: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  for (const path of await readdir(join(directory, "kernel"), { recursive: true })) {
    const match = /([^/]+)\.ko(\.xz|\.zst|\.gz)?$/.exec(path);
    if (match?.[1] !== undefined) {
      files.set(normalise(match[1]), join("kernel", path));
    }
  }
  return files;
}

async function builtinModules(directory: string): Promise<ReadonlySet<string>> {
  const text = await readFile(join(directory, "modules.builtin"), "utf8").catch(() => "");
  const names = text.split("\n").map((line) => /([^/]+)\.ko$/.exec(line.trim())?.[1]);
  return new Set(names.filter((name) => name !== undefined).map(normalise));
}

function normalise(name: string): string {
  return name.replaceAll("-", "_");
}
