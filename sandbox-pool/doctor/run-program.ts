/** Runs a program for what it prints, for a limited time. */

import { spawn } from "node:child_process";

export interface ProgramResult {
  readonly stdout: string;
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly timedOut: boolean;
}

export interface ProgramOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

const MAX_OUTPUT_CHARS = 256 * 1024;

/** Never rejects: a program that can't be started has exit code null and no signal. */
export async function runProgram(
  path: string,
  args: readonly string[],
  options: ProgramOptions,
): Promise<ProgramResult> {
  const child = spawn(path, args, { stdio: ["ignore", "pipe", "ignore"] });
  let stdout = "";
  let timedOut = false;
  const kill = () => child.kill("SIGKILL");
  const timer = setTimeout(() => {
    timedOut = true;
    kill();
  }, options.timeoutMs);
  options.signal?.addEventListener("abort", kill, { once: true });
  // Listeners for "abort" are not called when it has happened before.
  if (options.signal?.aborted === true) kill();
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout = (stdout + text).slice(0, MAX_OUTPUT_CHARS);
  });
  try {
    const [exitCode, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
      child.once("error", () => resolve([null, null]));
      child.once("close", (code, name) => resolve([code, name]));
    });
    return { stdout, exitCode, signal, timedOut };
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", kill);
  }
}
