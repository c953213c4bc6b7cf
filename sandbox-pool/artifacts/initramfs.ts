/** Builds initramfs archives: equal inputs give equal bytes. */

import { chmod, copyFile, lutimes, mkdir, readdir, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import type { Kernel } from "./kernel.js";
import { runChecked } from "./tools.js";

export interface InitramfsOptions {
  /** An empty directory to work in. */
  readonly workDirectory: string;
  readonly output: string;
  /** Absolute path in the archive to the file that it holds. All are executable. */
  readonly programs: Readonly<Record<string, string>>;
  readonly modules: ReturnType<Kernel["modules"]>;
  readonly directories: readonly string[];
  readonly signal?: AbortSignal | undefined;
}

/**
 * A newc archive, not compressed: emulated, decompression takes longer than reading. `/modules/order` has a line for each
 * module file, followed by its parameters.
 */
export async function buildInitramfs(options: InitramfsOptions): Promise<void> {
  const root = options.workDirectory;
  for (const directory of ["modules", ...options.directories]) {
    await mkdir(join(root, directory), { recursive: true });
  }
  for (const [path, source] of Object.entries(options.programs)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await copyFile(source, join(root, path));
    await chmod(join(root, path), 0o755);
  }
  const order: string[] = [];
  for (const { file, parameters } of options.modules) {
    const name = basename(file);
    await copyFile(file, join(root, "modules", name));
    await chmod(join(root, "modules", name), 0o644);
    order.push(parameters === "" ? name : `${name} ${parameters}`);
  }
  await writeFile(join(root, "modules", "order"), `${order.join("\n")}\n`, { mode: 0o644 });
  const paths = ["", ...(await readdir(root, { recursive: true }))].sort();
  for (const path of paths) {
    await lutimes(join(root, path), 0, 0);
  }
  await runChecked(
    "cpio",
    ["--create", "--format=newc", "--reproducible", "--owner=+0:+0", "--null", "--quiet", `--file=${options.output}`],
    { cwd: root, input: paths.map((path) => `${path === "" ? "." : path}\0`).join(""), signal: options.signal },
  );
}
