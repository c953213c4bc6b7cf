// Child processes of the set-up: each ends when the set-up is interrupted, and a failed one shows what it said.

import { spawn } from "node:child_process";
import { constants } from "node:os";
import { basename } from "node:path";

/** Two builds that share two processors are silent for minutes otherwise. */
const SIGN_OF_LIFE_MS = 30_000;

/** A failure that the reader can act on. */
export class SetupError extends Error {
  constructor(message, remedy, exitCode = 1) {
    super(message);
    this.remedy = remedy;
    this.exitCode = exitCode;
  }
}

/** Output of the set-up goes to stderr: a command's own data may go to a pipe. */
export function say(message) {
  process.stderr.write(`coppice setup: ${message}\n`);
}

const running = new Set();
let interrupted = false;

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    interrupted = true;
    for (const child of running) child.kill(signal === "SIGHUP" ? "SIGTERM" : signal);
  });
}

/** Runs a program quietly; rejects with its last lines where it fails. */
export function runQuietly(program, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.root,
      env: { ...process.env, ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    running.add(child);
    const begin = Date.now();
    const life = setInterval(() => {
      say(`  still at it (${basename(program)}, ${Math.round((Date.now() - begin) / 1_000)} s)`);
    }, SIGN_OF_LIFE_MS);
    let output = "";
    const keep = (data) => {
      output = (output + data).slice(-options.keepBytes || -8_192);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("error", (error) => {
      clearInterval(life);
      running.delete(child);
      reject(new SetupError(`'${program}' can't be started: ${error.message}`, options.remedy));
    });
    child.on("close", (code, signal) => {
      clearInterval(life);
      running.delete(child);
      if (interrupted) return reject(new SetupError("interrupted", "run the same command again", 130));
      if (code === 0) return resolve(output);
      const how = signal === null ? `exit code ${code}` : signal;
      reject(new SetupError(`'${program} ${args.join(" ")}' failed (${how}):\n${output.trimEnd()}`, options.remedy));
    });
  });
}

/** Runs a program on this terminal and returns its exit code. */
export function runForeground(program, args, options) {
  return new Promise((resolve, reject) => {
    if (interrupted) return reject(new SetupError("interrupted", "run the same command again", 130));
    const child = spawn(program, args, {
      cwd: options.root,
      env: { ...process.env, ...options.env },
      stdio: "inherit",
    });
    running.add(child);
    child.on("error", reject);
    child.on("close", (code, signal) => {
      running.delete(child);
      resolve(code ?? 128 + (constants.signals[signal] ?? 0));
    });
  });
}
