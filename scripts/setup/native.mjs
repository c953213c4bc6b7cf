// The Rust programs: built by cargo once for each content of native/, then taken from the cache by every clone.

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { cacheDirectory, contentKey, filesBelow, keepRecent } from "./cache.mjs";
import { runQuietly, SetupError, say } from "./process.mjs";

const PROGRAMS = ["coppice-agent", "coppice-keeper", "coppice-probe", "coppice-vmm", "coppiced"];
const TARGET = "x86_64-unknown-linux-gnu";
const PROFILE = "dist";

function compiler(native) {
  try {
    return execFileSync("rustc", ["--version"], { cwd: native, encoding: "utf8" }).trim();
  } catch (error) {
    throw new SetupError(`rustc does not run: ${error.message}`, "install a Rust toolchain from https://rustup.rs");
  }
}

/** Directory that holds the programs. */
export async function buildNative(root) {
  if (process.env.COPPICE_NATIVE_DIR) return process.env.COPPICE_NATIVE_DIR;
  const native = join(root, "native");
  const sources = filesBelow(native, ["target", "tests"]);
  const parent = cacheDirectory("native");
  const directory = join(parent, contentKey(root, sources, [compiler(native)]));
  if (!PROGRAMS.every((program) => existsSync(join(directory, program)))) {
    say(
      "builds the virtual machine monitor, the daemon and the guest agent (Rust; two to five minutes the first time)",
    );
    await runQuietly("cargo", ["build", "--profile", PROFILE, "--locked", "--bins"], {
      root: native,
      remedy: "read the compiler's message above; Rust 1.90 or newer is needed",
    });
    install(join(native, "target", TARGET, PROFILE), directory);
  }
  keepRecent(directory, parent);
  remember(native, directory);
  return directory;
}

/** Where programs that are run without this set-up look, see `sandbox-pool/artifacts/native.ts`. */
function remember(native, directory) {
  mkdirSync(join(native, "target"), { recursive: true });
  const file = join(native, "target", "programs-directory");
  writeFileSync(`${file}.${process.pid}`, directory);
  renameSync(`${file}.${process.pid}`, file);
}

/** Copies the programs beside their place and renames them into it, so that no other process sees half of them. */
function install(from, directory) {
  const partial = `${directory}.partial-${process.pid}`;
  mkdirSync(partial, { recursive: true });
  for (const program of PROGRAMS) {
    copyFileSync(join(from, program), join(partial, program));
    chmodSync(join(partial, program), 0o755);
  }
  try {
    rmSync(directory, { recursive: true, force: true });
    renameSync(partial, directory);
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    // Another clone that built the same was quicker.
    if (!PROGRAMS.every((program) => existsSync(join(directory, program)))) throw error;
  }
}
