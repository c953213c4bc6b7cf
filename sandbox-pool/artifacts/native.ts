/** The programs of `native/`: where they are, and whether they are all there. */

import { access, constants, readFile } from "node:fs/promises";
import { join } from "node:path";

import { CoppiceError } from "../errors.js";
import { packageRoot } from "./paths.js";

export interface NativePrograms {
  readonly agent: string;
  readonly coppiced: string;
  readonly keeper: string;
  readonly probe: string;
  readonly vmm: string;
}

const FILE_NAMES: Readonly<Record<keyof NativePrograms, string>> = Object.freeze({
  agent: "coppice-agent",
  coppiced: "coppiced",
  keeper: "coppice-keeper",
  probe: "coppice-probe",
  vmm: "coppice-vmm",
});

const BUILD_DIRECTORY = join("native", "target", "x86_64-unknown-linux-gnu", "release");

/** Written by the set-up: the folder in the user's cache that has what it built. */
const REMEMBERED = join("native", "target", "programs-directory");

/**
 * In `directory`, or COPPICE_NATIVE_DIR, or where the set-up has put them, or what cargo has built below the package. Throws
 * `NATIVE_PROGRAM_MISSING`.
 */
export async function findNativePrograms(directory?: string): Promise<NativePrograms> {
  const where =
    directory ?? process.env["COPPICE_NATIVE_DIR"] ?? (await remembered()) ?? join(packageRoot(), BUILD_DIRECTORY);
  const found: Record<string, string> = {};
  for (const [name, fileName] of Object.entries(FILE_NAMES)) {
    const path = join(where, fileName);
    try {
      await access(path, constants.X_OK);
    } catch (cause) {
      throw new CoppiceError(`Program \`${fileName}\` is not in ${where}`, {
        code: "NATIVE_PROGRAM_MISSING",
        faultDomain: "user",
        remedy:
          "Build the native programs: `node scripts/bootstrap.mjs setup` does, or `cargo build --release` in native/; or set COPPICE_NATIVE_DIR.",
        cause,
      });
    }
    found[name] = path;
  }
  return found as unknown as NativePrograms;
}

/** The cache may have been emptied since. */
async function remembered(): Promise<string | undefined> {
  try {
    const directory = await readFile(join(packageRoot(), REMEMBERED), "utf8");
    await access(directory);
    return directory;
  } catch {
    return undefined;
  }
}
