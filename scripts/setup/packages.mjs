// Programs that come from the distribution: says which packages are missing, then installs them where it may.

import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";

import { runQuietly, SetupError, say } from "./process.mjs";

/** A program (or a file) to the Debian and Ubuntu package that brings it, for what needs it. */
const NEEDED = [
  { program: "make", package: "make", for: ["run", "test", "unit"] },
  { program: "g++", package: "g++", for: ["run", "test", "unit"] },
  { program: "python3", package: "python3", for: ["run", "test", "unit"] },
  { program: "cc", package: "gcc", for: ["run", "test", "unit"] },
  { program: "qemu-system-x86_64", package: "qemu-system-x86", for: ["run", "test"] },
  { program: "mmdebstrap", package: "mmdebstrap", for: ["run", "test"] },
  { program: "mke2fs", package: "e2fsprogs", for: ["run", "test", "unit"] },
  { program: "mkfs.erofs", package: "erofs-utils", for: ["run", "test"] },
  { program: "cpio", package: "cpio", for: ["run", "test"] },
  { program: "xz", package: "xz-utils", for: ["run", "test"] },
  { program: "flock", package: "util-linux", for: ["run", "test"] },
  { file: "/usr/share/keyrings/debian-archive-keyring.gpg", package: "debian-archive-keyring", for: ["run", "test"] },
  { file: "/usr/games/adventure", package: "bsdgames", for: ["test", "unit"] },
];

function onPath(program) {
  const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"];
  return folders.some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function missingPackages(purpose) {
  const missing = NEEDED.filter((need) => need.for.includes(purpose)).filter((need) =>
    need.program === undefined ? !existsSync(need.file) : !onPath(need.program),
  );
  return [...new Set(missing.map((need) => need.package))];
}

/** What to say where there is no Rust toolchain that can build `native/`. */
export function missingRustToolchain() {
  if (onPath("cargo")) return undefined;
  return new SetupError(
    "There is no Rust toolchain (cargo) on the PATH.",
    "install one from https://rustup.rs (1.90 or newer; the distribution's own may be too old), then run the same command again.",
  );
}

/** Installs what `purpose` (`run`, `test` or `unit`) lacks; nothing else on the machine is changed. */
export async function installPackages(purpose) {
  const missing = missingPackages(purpose);
  if (missing.length === 0) return;
  const command = `apt-get install --no-install-recommends ${missing.join(" ")}`;
  if (!onPath("apt-get")) {
    throw new SetupError(
      `Missing on this machine: ${missing.join(", ")}, and there is no apt-get here.`,
      "install them by hand.",
    );
  }
  if (process.getuid() !== 0) {
    throw new SetupError(`Missing on this machine: ${missing.join(", ")}.`, `sudo ${command}`);
  }
  say(`installs these packages of the distribution (and what they depend on): ${missing.join(" ")}`);
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  const remedy = `see what this says: apt-get update && ${command}`;
  const lists = "/var/lib/apt/lists";
  if (!existsSync(lists) || !readdirSync(lists).some((name) => name.includes("_Packages"))) {
    await runQuietly("apt-get", ["update"], { env, remedy });
  }
  const install = () =>
    runQuietly("apt-get", ["install", "-y", "--no-install-recommends", ...missing], { env, remedy });
  try {
    await install();
  } catch (error) {
    if (error.exitCode === 130) throw error;
    // An index that is older than the archive names files that are gone.
    await runQuietly("apt-get", ["update"], { env, remedy });
    await install();
  }
  const still = missingPackages(purpose);
  if (still.length > 0) throw new SetupError(`Still missing after the installation: ${still.join(", ")}.`, remedy);
}
