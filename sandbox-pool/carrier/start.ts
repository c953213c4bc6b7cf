/** Starts one carrier and waits until its daemon answers. */

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import type { HostArtifacts } from "../artifacts/index.js";
import { stateDirectory } from "../artifacts/paths.js";
import { requireTool, tail, throwIfAborted } from "../artifacts/tools.js";
import { dial } from "../client/handshake.js";
import { CoppiceError } from "../errors.js";
import { DEFAULTS } from "./defaults.js";
import { endCarrier } from "./end.js";
import { identifyProcess, isRunning } from "./process-identity.js";
import { configFileOf, qemuCommand } from "./qemu-command.js";
import { makeCarrierDirectory, type RunningCarrier, writeRecord } from "./record.js";

/** What the daemon prints when clients may come, see docs/carrier.md. */
const READY = /^coppiced: listening on /m;

export interface StartOptions {
  readonly runtime: string;
  readonly artifacts: HostArtifacts;
  readonly instance: number;
  readonly memoryMiB: number;
  readonly idleSeconds: number;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

/** Throws `CARRIER_BOOT_FAILED` with the end of the console. With the lock of carriers held. */
export async function startCarrier(options: StartOptions): Promise<RunningCarrier> {
  const program = requireTool("qemu-system-x86_64");
  for (let attempt = 1; ; attempt++) {
    const carrier = await launch(program, options);
    try {
      await waitUntilReady(carrier.running, options);
      carrier.letGo();
      return carrier.running;
    } catch (error) {
      const words = readConsole(carrier.running.directory, options.instance);
      await endCarrier(carrier.running);
      if (/Could not set up host forwarding rule/.test(words) && attempt < DEFAULTS.portAttempts) {
        continue;
      }
      if (error instanceof CoppiceError && error.code === "ABORTED") {
        throw error;
      }
      throw bootFailed(error, readConsole(carrier.running.directory, options.instance) || words);
    }
  }
}

/** Where the end of the console is kept when the carrier has ended. */
export function lastConsoleOf(instance: number): string {
  return join(stateDirectory(), instance === 0 ? "carrier-console.log" : `carrier-console.${instance}.log`);
}

interface Launched {
  readonly running: RunningCarrier;
  /** Lets it live on when this process ends. */
  letGo(): void;
}

async function launch(program: string, options: StartOptions): Promise<Launched> {
  const { artifacts } = options;
  const port = await freePort();
  const token = randomBytes(24).toString("base64url");
  const directory = makeCarrierDirectory(options.runtime);
  // A failure now must not be explained by the words of an earlier carrier.
  rmSync(lastConsoleOf(options.instance), { force: true });
  try {
    writeConfig(directory, { token, port: DEFAULTS.guestPort, idleSeconds: options.idleSeconds });
    const command = qemuCommand({ program, directory, artifacts, memoryMiB: options.memoryMiB, port });
    const keeperLog = openSync(join(directory, "keeper.log"), "w", 0o600);
    const keeper = spawn(
      artifacts.keeper,
      [
        ...["--directory", directory, "--last-console", lastConsoleOf(options.instance)],
        ...["--console-limit", `${DEFAULTS.consoleLimitBytes}`, "--", ...command],
      ],
      // A session of its own: Ctrl-C in the terminal is for this process, others may use the carrier.
      { stdio: ["pipe", "ignore", keeperLog], detached: true, cwd: "/" },
    );
    closeSync(keeperLog);
    await new Promise<void>((resolve, reject) => keeper.once("spawn", resolve).once("error", reject));
    keeper.stdin?.on("error", () => {});
    const identity = keeper.pid === undefined ? undefined : identifyProcess(keeper.pid);
    if (identity === undefined) {
      throw new Error("the carrier's keeper ended at once");
    }
    const record = {
      process: identity,
      key: artifacts.key,
      instance: options.instance,
      port,
      token,
      memoryMiB: options.memoryMiB,
      startedAt: new Date().toISOString(),
    };
    writeRecord(directory, record);
    const letGo = () => {
      keeper.stdin?.end("keep");
      keeper.unref();
    };
    return { running: { ...record, directory }, letGo };
  } catch (cause) {
    rmSync(directory, { recursive: true, force: true });
    throw cause instanceof CoppiceError ? cause : bootFailed(cause, "");
  }
}

/**
 * The daemon says on the console that it listens. Connecting earlier would do harm: the network keeps such connections and
 * hands them over later, with greetings whose time of day is long past.
 */
async function waitUntilReady(carrier: RunningCarrier, options: StartOptions): Promise<void> {
  options.onProgress?.("boots the emulated host");
  const started = performance.now();
  while (performance.now() - started < DEFAULTS.bootTimeoutMs) {
    throwIfAborted(options.signal, "Starting the carrier");
    if (!isRunning(carrier.process)) {
      throw new Error("QEMU ended before the daemon listened");
    }
    if (READY.test(readLiveConsole(carrier.directory))) {
      const endpoint = { host: "127.0.0.1", port: carrier.port };
      const timeoutMs = DEFAULTS.answerTimeoutMs;
      const connection = await dial({ endpoint, token: carrier.token, timeoutMs, signal: options.signal });
      await connection.close();
      return;
    }
    await sleep(DEFAULTS.retryMs, undefined, { signal: options.signal }).catch(() => {});
  }
  throw new Error(`the daemon does not listen after ${DEFAULTS.bootTimeoutMs / 1000} s`);
}

/** JSON, and zeros up to whole pages: a disk has whole sectors. */
function writeConfig(directory: string, config: object): void {
  const json = Buffer.from(JSON.stringify(config));
  const image = Buffer.alloc(Math.ceil(json.length / 4096) * 4096);
  json.copy(image);
  writeFileSync(configFileOf(directory), image, { mode: 0o600 });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") {
    throw new Error("no free port on 127.0.0.1");
  }
  return address.port;
}

/** QEMU's own messages and the console: of the running carrier, or what the keeper kept of one that has ended. */
export function readConsole(directory: string, instance: number): string {
  return readLiveConsole(directory) || readText(lastConsoleOf(instance));
}

function readLiveConsole(directory: string): string {
  const names = ["keeper.log", "qemu.log", "console.previous.log", "console.log"];
  return names.map((name) => readText(join(directory, name))).join("");
}

function readText(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

function bootFailed(cause: unknown, words: string): CoppiceError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a console may hold anything; the reader's terminal must not obey it.
  const printable = words.replace(/\u001b\[[0-9;?]*[A-Za-z]|[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");
  const lastWords = tail(printable, DEFAULTS.consoleTailLines);
  return new CoppiceError(
    `Carrier did not start: ${reason}${lastWords === "" ? "" : `\nIts last words:\n${lastWords}`}`,
    {
      code: "CARRIER_BOOT_FAILED",
      faultDomain: "host",
      retryable: true,
      remedy: "Read its last words above; `coppice doctor` says what this machine lacks.",
      cause,
    },
  );
}
