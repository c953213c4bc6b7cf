/** Runs programs of the distribution: found or a typed error, whole process groups, bounded output, abortable. */

import { spawn } from "node:child_process";
import { accessSync, closeSync, constants, openSync } from "node:fs";
import { delimiter, join } from "node:path";

import { abortError } from "../abort.js";
import { CoppiceError } from "../errors.js";

/** Program to the Debian and Ubuntu package that brings it. */
export const TOOL_PACKAGES = Object.freeze({
  "apt-cache": "apt",
  "apt-config": "apt",
  "apt-get": "apt",
  cpio: "cpio",
  "dpkg-deb": "dpkg",
  flock: "util-linux",
  mke2fs: "e2fsprogs",
  "mkfs.erofs": "erofs-utils",
  mmdebstrap: "mmdebstrap",
  "qemu-system-x86_64": "qemu-system-x86",
  tar: "tar",
  xz: "xz-utils",
  zstd: "zstd",
});

export type Tool = keyof typeof TOOL_PACKAGES;

/** Administrators' programs are not on every user's PATH. */
const EXTRA_PATH = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/** Output kept of a program that says more than anybody reads: the end, where errors are. */
const KEPT_OUTPUT_CHARS = 64 * 1024;

/** Between asking a group of processes to end and ending it. */
const TERMINATION_GRACE_MS = 2_000;

export interface RunOptions {
  readonly cwd?: string;
  /** On top of the process's own. */
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Each whole line of both streams, as it comes. */
  readonly onLine?: (line: string) => void;
  readonly input?: string | Uint8Array;
  /** Standard output goes there instead of into the result. */
  readonly stdoutFile?: string;
  /**
   * However it or this process ends, its processes and its mounts end with it: it runs in namespaces of its own, where this
   * machine allows that.
   */
  readonly leavesNothing?: boolean;
}

export interface RunResult {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  /** Both streams as they came, the last 64 Ki characters. */
  readonly output: string;
}

/** Absolute path of a program, or undefined. */
export function findTool(tool: string): string | undefined {
  for (const folder of [...(process.env["PATH"] ?? "").split(delimiter), ...EXTRA_PATH]) {
    if (folder === "") {
      continue;
    }
    try {
      const path = join(folder, tool);
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // The next folder may have it.
    }
  }
  return undefined;
}

export function requireTool(tool: Tool): string {
  const path = findTool(tool);
  if (path === undefined) {
    throw new CoppiceError(`Program \`${tool}\` is not installed`, {
      code: "TOOL_MISSING",
      faultDomain: "user",
      remedy: `Install it: apt-get install --no-install-recommends ${TOOL_PACKAGES[tool]}`,
    });
  }
  return path;
}

/** Runs a program to its end. Throws `TOOL_MISSING` and `ABORTED`; a failure is for the caller to judge. */
export async function run(tool: Tool, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const path = requireTool(tool);
  throwIfAborted(options.signal, `\`${tool}\``);
  // A group of its own, so that an abort reaches what the program has started too.
  const stdoutFd = options.stdoutFile === undefined ? undefined : openSync(options.stdoutFile, "w");
  const contained = options.leavesNothing === true && (await canContain()) ? CONTAINED : [];
  const [program = path, ...programArgs] = [...contained, path, ...args];
  const child = spawn(program, programArgs, {
    cwd: options.cwd,
    env: { ...process.env, LC_ALL: "C.UTF-8", ...options.env },
    stdio: ["pipe", stdoutFd ?? "pipe", "pipe"],
    detached: true,
  });
  if (stdoutFd !== undefined) closeSync(stdoutFd);
  const killGroup = (signal: NodeJS.Signals) => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, signal);
    } catch {
      // The group is gone already.
    }
  };
  let killTimer: NodeJS.Timeout | undefined;
  const onAbort = () => {
    killGroup("SIGTERM");
    killTimer = setTimeout(() => killGroup("SIGKILL"), TERMINATION_GRACE_MS);
  };
  options.signal?.addEventListener("abort", onAbort, { once: true });
  const stdout = new TextCollector();
  const output = new TextCollector(options.onLine);
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    stdout.add(text);
    output.add(text);
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => output.add(text));
  // A program that ends without reading its input is judged by its exit code.
  child.stdin?.on("error", () => {});
  child.stdin?.end(options.input);
  try {
    const [exitCode, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, name) => resolve([code, name]));
    });
    output.end();
    throwIfAborted(options.signal, `\`${tool}\``);
    return { exitCode, signal, stdout: stdout.text, output: output.text };
  } finally {
    options.signal?.removeEventListener("abort", onAbort);
    clearTimeout(killTimer);
    if (options.signal?.aborted) killGroup("SIGKILL");
  }
}

/** Dies with this process, and takes with it every process of its namespace, whose mounts nobody else has seen. */
const CONTAINED = [
  ...["setpriv", "--pdeathsig", "KILL", "--"],
  ...["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"],
];

let containing: Promise<boolean> | undefined;

/** Containers often may not make namespaces. */
function canContain(): Promise<boolean> {
  containing ??= new Promise((resolve) => {
    const [program = "", ...args] = CONTAINED;
    const trial = spawn(program, [...args, "true"], { stdio: "ignore" });
    trial.once("error", () => resolve(false));
    trial.once("close", (code) => resolve(code === 0));
  });
  return containing;
}

/** As `run`, and throws `TOOL_FAILED` with the end of the output where the exit code is not 0. */
export async function runChecked(tool: Tool, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const result = await run(tool, args, options);
  if (result.exitCode !== 0) {
    throw toolFailed(tool, result);
  }
  return result;
}

export function toolFailed(tool: string, result: RunResult): CoppiceError {
  if (/No space left on device|write error.*space|Disk quota exceeded/i.test(result.output)) {
    return new CoppiceError(`Disk is full: \`${tool}\` could not write\n${tail(result.output, 3)}`, {
      code: "DISK_FULL",
      faultDomain: "host",
      remedy: "Free some space, or point XDG_CACHE_HOME to a larger disk.",
    });
  }
  const how = result.signal === null ? `exit code ${result.exitCode}` : `signal ${result.signal}`;
  return new CoppiceError(`\`${tool}\` failed with ${how}\n${tail(result.output, 20)}`, {
    code: "TOOL_FAILED",
    faultDomain: "host",
    remedy: "Read the program's own message above.",
  });
}

export function throwIfAborted(signal: AbortSignal | undefined, what: string): void {
  if (signal?.aborted) {
    throw abortError(what, signal);
  }
}

/** The last non-empty lines. */
export function tail(text: string, lines: number): string {
  return text
    .split(/\r?\n|\r/)
    .filter((line) => line.trim() !== "")
    .slice(-lines)
    .join("\n");
}

class TextCollector {
  text = "";
  #rest = "";
  readonly #onLine: ((line: string) => void) | undefined;

  constructor(onLine?: (line: string) => void) {
    this.#onLine = onLine;
  }

  add(chunk: string): void {
    this.text += chunk;
    if (this.text.length > 2 * KEPT_OUTPUT_CHARS) {
      this.text = this.text.slice(-KEPT_OUTPUT_CHARS);
    }
    if (this.#onLine === undefined) {
      return;
    }
    const lines = (this.#rest + chunk).split(/\r?\n/);
    this.#rest = (lines.pop() ?? "").slice(-KEPT_OUTPUT_CHARS);
    for (const line of lines) {
      this.#onLine(line);
    }
  }

  end(): void {
    if (this.#rest !== "") {
      this.#onLine?.(this.#rest);
    }
  }
}
