/** erofs images with fixed identity and times. */

import { createHash } from "node:crypto";

import { run, toolFailed } from "./tools.js";

export interface ErofsOptions {
  readonly root: string;
  readonly output: string;
  readonly compress: boolean;
  /** Default: all files get one time, since when they were copied says nothing. */
  readonly keepTimes?: boolean;
  /** The file system's UUID is made of it. */
  readonly name: string;
  readonly signal?: AbortSignal | undefined;
}

export async function makeErofs(options: ErofsOptions): Promise<void> {
  const args = [
    "--quiet",
    ...(options.compress ? ["-zlz4hc"] : []),
    ...(options.keepTimes === true ? [] : ["-T0"]),
    `-U${uuidOf(options.name)}`,
    options.output,
    options.root,
  ];
  const result = await run("mkfs.erofs", args, { signal: options.signal });
  if (result.exitCode !== 0) {
    throw toolFailed("mkfs.erofs", result);
  }
}

function uuidOf(name: string): string {
  const hex = createHash("sha256").update(name).digest("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), `4${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    "-",
  );
}
