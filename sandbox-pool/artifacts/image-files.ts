/** Puts files into a root file system that is being built, and never beside it. */

import { chmod, lstat, mkdir, readlink, rm, writeFile } from "node:fs/promises";
import { join, posix } from "node:path";

import { CoppiceError } from "../errors.js";

/** As the kernel's own limit. */
const MAX_LINKS = 40;

const ELF_MAGIC = "\u007fELF";

/** Contents that are programs (ELF, or a script with `#!`) may be executed, the rest only read. All belong to root. */
export async function addFiles(root: string, files: ReadonlyMap<string, Uint8Array>): Promise<void> {
  for (const [path, contents] of files) {
    const directory = await resolveInside(root, posix.dirname(path), path);
    const target = join(root, directory, posix.basename(path));
    const existing = await lstat(target).catch(() => undefined);
    if (existing?.isDirectory() === true) {
      throw invalidPath(path, "is a directory in the image");
    }
    await rm(target, { force: true });
    await writeFile(target, contents, { flag: "wx" });
    await chmod(target, isProgram(contents) ? 0o755 : 0o644);
  }
}

/**
 * The directory as it is found from inside, made where it is missing. The image's absolute links, such as /var/run, lead
 * to its own directories here: followed by the system they would lead to this machine's.
 */
async function resolveInside(root: string, directory: string, forPath: string): Promise<string> {
  let resolved = "/";
  const rest = directory.split("/").filter(Boolean);
  let links = 0;
  for (let name = rest.shift(); name !== undefined; name = rest.shift()) {
    if (name === "." || name === "..") {
      resolved = posix.join(resolved, name);
      continue;
    }
    const next = posix.join(resolved, name);
    const found = await lstat(join(root, next)).catch(() => undefined);
    if (found === undefined) {
      await mkdir(join(root, next), { mode: 0o755 });
      resolved = next;
    } else if (found.isSymbolicLink()) {
      links += 1;
      if (links > MAX_LINKS) {
        throw invalidPath(forPath, "leads through a circle of links");
      }
      const target = await readlink(join(root, next));
      resolved = target.startsWith("/") ? "/" : resolved;
      rest.unshift(...target.split("/").filter(Boolean));
    } else if (found.isDirectory()) {
      resolved = next;
    } else {
      throw invalidPath(forPath, `leads through ${next}, which is a file in the image`);
    }
  }
  return resolved;
}

function isProgram(contents: Uint8Array): boolean {
  const start = Buffer.from(contents.subarray(0, 4)).toString("latin1");
  return start === ELF_MAGIC || start.startsWith("#!");
}

function invalidPath(path: string, what: string): CoppiceError {
  return new CoppiceError(`\`image.files["${path}"]\` ${what}`, {
    code: "IMAGE_SPEC_INVALID",
    faultDomain: "user",
    remedy: "Choose another path: what the image's packages have there stays.",
  });
}
