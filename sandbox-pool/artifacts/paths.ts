/** Where things are kept, after the XDG base directory specification, and where this package itself is. */

import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";

import { CoppiceError } from "../errors.js";

type Environment = Readonly<Record<string, string | undefined>>;

/** Kernels, images and what else can be made again; may be deleted at any time. */
export function cacheDirectory(env: Environment = process.env): string {
  return join(xdgBase(env, "XDG_CACHE_HOME", ".cache"), "coppice");
}

/** What is worth keeping: the last consoles of carriers are here. */
export function stateDirectory(env: Environment = process.env): string {
  return join(xdgBase(env, "XDG_STATE_HOME", join(".local", "state")), "coppice");
}

/** The specification says that a relative path is to be ignored. */
function xdgBase(env: Environment, name: string, fallback: string): string {
  const value = env[name];
  return value !== undefined && isAbsolute(value) ? value : join(env["HOME"] || homedir(), fallback);
}

/** Directory with this package's package.json; the code may run from source or from `dist/`. */
export function packageRoot(): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const file = join(directory, "package.json");
    if (existsSync(file) && (JSON.parse(readFileSync(file, "utf8")) as { name?: unknown }).name === "coppice") {
      return directory;
    }
    const parent = dirname(directory);
    if (parent === directory) {
      throw new CoppiceError("The package's own directory can't be found", {
        code: "INSTALLATION_BROKEN",
        faultDomain: "user",
        remedy: "Install Coppice again; package.json must lie above its modules.",
      });
    }
    directory = parent;
  }
}
