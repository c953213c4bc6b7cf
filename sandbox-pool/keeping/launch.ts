/** Starts one host under its keeper and waits until its daemon answers. */

import { spawn } from "node:child_process";
import { closeSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { tail, throwIfAborted } from "../artifacts/tools.js";
import { dial } from "../client/handshake.js";
import { CoppiceError } from "../errors.js";
import { lastConsoleOf, readConsole, readLiveConsole } from "./console.js";
import { DEFAULTS } from "./defaults.js";
import { endHost } from "./end.js";
import { identifyProcess, isRunning } from "./process-identity.js";
import { type HostRecord, makeHostDirectory, type RunningHost, writeRecord } from "./record.js";

/** What is about to be started: all that is known before there is a process. */
export interface LaunchPlan {
  readonly record: Omit<HostRecord, "process" | "startedAt">;
  readonly command: readonly string[];
}

export interface LaunchOptions {
  readonly runtime: string;
  readonly kind: HostRecord["kind"];
  readonly instance: number;
  /** The keeper program. */
  readonly keeper: string;
  /** Writes what the program needs into its directory, and says how to start it. */
  readonly prepare: (directory: string) => Promise<LaunchPlan>;
  /** Console output after which another try with a new plan is worth it, such as a port that was taken meanwhile. */
  readonly retryWhen?: RegExp;
  readonly signal?: AbortSignal | undefined;
}

/** What the daemon prints when clients may come, see docs/carrier.md. */
const READY = /^coppiced: listening on /m;

const ATTEMPTS = 5;

/** Throws `HOST_START_FAILED` with the end of the console. With the lock of the kind held. */
export async function launchHost(options: LaunchOptions): Promise<RunningHost> {
  for (let attempt = 1; ; attempt++) {
    const launched = await launch(options);
    try {
      await waitUntilReady(launched.host, options.signal);
      launched.letGo();
      return launched.host;
    } catch (error) {
      const words = readConsole(launched.host);
      await endHost(launched.host);
      if (options.retryWhen?.test(words) === true && attempt < ATTEMPTS) {
        continue;
      }
      if (error instanceof CoppiceError && error.code === "ABORTED") {
        throw error;
      }
      throw startFailed(error, words);
    }
  }
}

interface Launched {
  readonly host: RunningHost;
  /** Lets it live on when this process ends. */
  letGo(): void;
}

async function launch(options: LaunchOptions): Promise<Launched> {
  const { kind, instance } = options;
  const directory = makeHostDirectory(options.runtime, kind);
  // A failure now must not be explained by the words of an earlier host.
  rmSync(lastConsoleOf(kind, instance), { force: true });
  try {
    const plan = await options.prepare(directory);
    const keeper = await startKeeper(options, directory, plan.command);
    const identity = keeper.pid === undefined ? undefined : identifyProcess(keeper.pid);
    if (identity === undefined) {
      throw new Error("its keeper ended at once");
    }
    const record = { ...plan.record, process: identity, startedAt: new Date().toISOString() };
    writeRecord(directory, record);
    const letGo = () => {
      keeper.stdin?.end("keep");
      keeper.unref();
    };
    return { host: { ...record, directory }, letGo };
  } catch (error) {
    const words = readConsole({ directory, kind, instance });
    rmSync(directory, { recursive: true, force: true });
    throw error instanceof CoppiceError ? error : startFailed(error, words);
  }
}

async function startKeeper(options: LaunchOptions, directory: string, command: readonly string[]) {
  const log = openSync(join(directory, "keeper.log"), "w", 0o600);
  try {
    const keeper = spawn(
      options.keeper,
      [
        ...["--directory", directory, "--last-console", lastConsoleOf(options.kind, options.instance)],
        ...["--console-limit", `${DEFAULTS.consoleLimitBytes}`, "--", ...command],
      ],
      // A session of its own: Ctrl-C in the terminal is for this process, others may use the host.
      { stdio: ["pipe", "ignore", log], detached: true, cwd: "/" },
    );
    await new Promise<void>((resolve, reject) => keeper.once("spawn", resolve).once("error", reject));
    keeper.stdin?.on("error", () => {});
    return keeper;
  } finally {
    closeSync(log);
  }
}

/**
 * The daemon says on the console that it listens. Connecting earlier would do harm: an emulated network keeps such
 * connections and hands them over later, with greetings whose time of day is long past.
 */
async function waitUntilReady(host: RunningHost, signal: AbortSignal | undefined): Promise<void> {
  const started = performance.now();
  while (performance.now() - started < DEFAULTS.bootTimeoutMs) {
    throwIfAborted(signal, "Starting the host");
    if (!isRunning(host.process)) {
      throw new Error("it ended before its daemon listened");
    }
    if (READY.test(readLiveConsole(host.directory))) {
      const { endpoint, token } = host;
      const connection = await dial({ endpoint, token, timeoutMs: DEFAULTS.answerTimeoutMs, signal });
      await connection.close();
      return;
    }
    await sleep(DEFAULTS.pollMs, undefined, { signal }).catch(() => {});
  }
  throw new Error(`its daemon does not listen after ${DEFAULTS.bootTimeoutMs / 1000} s`);
}

function startFailed(cause: unknown, words: string): CoppiceError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const lastWords = tail(printable(words), DEFAULTS.consoleTailLines);
  const quoted = lastWords === "" ? "" : `\nIts last words:\n${lastWords}`;
  return new CoppiceError(`Host did not start: ${reason}${quoted}`, {
    code: "HOST_START_FAILED",
    faultDomain: "host",
    retryable: true,
    remedy: "Read its last words above; `coppice doctor` says what this machine lacks.",
    cause,
  });
}

/** A console may hold anything; the reader's terminal must not obey it. */
function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: taking control characters out is the purpose.
  return text.replace(/\u001b(\[[0-9;?]*[A-Za-z]|[a-z])|[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");
}
