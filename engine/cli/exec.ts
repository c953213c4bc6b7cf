/** `coppice exec`: one program in a guest, with its streams, its signals and its exit code. */

import { randomUUID } from "node:crypto";
import { constants } from "node:os";

import { type Command, InvalidArgumentError, Option } from "commander";

import { CoppiceError, type ExecOptions, type ExecResult, type Guest } from "../../sandbox-pool/index.js";
import { guestDirectory, guestUser, type HostKind, hostOption, positiveNumber, wholeNumber } from "./arguments.js";
import { EXIT } from "./exit-codes.js";
import { openTarget } from "./guest-target.js";
import { IMAGE_HELP } from "./image-argument.js";
import { writeStream } from "./output.js";
import type { ProgramParts } from "./program.js";
import { logFailure } from "./terminal.js";

interface ExecCommandOptions {
  readonly host: HostKind;
  readonly memory?: number;
  readonly user?: string;
  readonly cwd?: string;
  readonly env: Readonly<Record<string, string>>;
  readonly timeout: number;
}

/** A day, the most that a call may take. */
const MAX_SECONDS = 24 * 3_600;
/** As timeout(1) has it. */
const TIMED_OUT = 124;
/** As shells have it: 128 and the signal's number. */
const SIGNALLED = 128;
const FIRST_REALTIME = 34;

/** As shells have it for a program that is not there, or is none. */
const NOT_STARTED: Readonly<Record<string, number>> = { EXEC_NOT_FOUND: 127, EXEC_NOT_EXECUTABLE: 126 };

export const MEMORY_HELP = "guest memory in MiB (default: 192)";
export const USER_HELP = "name or number of the guest's user, with :GROUP where it is not its own (default: root)";
export const memoryMiB = wholeNumber(80, 64 * 1_024);

export function addExec(program: Command, parts: ProgramParts): void {
  program
    .command("exec")
    .argument("<image|sandbox>", "where: a fresh microVM of an image, or one that runs (see `coppice ps`)")
    .argument("<command...>", "program and arguments, after --")
    .summary("run one program in a guest")
    .description(
      "Runs one program in a guest and ends with its exit code. What is piped in is its stdin; Ctrl-C and SIGTERM go to the program, a second one ends the command. The microVM of an image ends with it.",
    )
    .addOption(hostOption())
    .option("--memory <mib>", MEMORY_HELP, memoryMiB)
    .option("--user <user>", USER_HELP, guestUser)
    .option("--cwd <dir>", "working directory in the guest (default: /)", guestDirectory)
    .addOption(
      new Option("--env <name=value>", "set a variable; may be repeated").argParser(addVariable).default({}, "none"),
    )
    .addOption(
      new Option("--timeout <s>", "kill the program after so many seconds")
        .argParser(positiveNumber(MAX_SECONDS))
        .default(MAX_SECONDS, "a day"),
    )
    .addHelpText(
      "after",
      `${IMAGE_HELP}

Examples:
  coppice exec debian -- cat /etc/os-release
  echo 'print(6 * 7)' | coppice exec debian:python3 -- python3 -
  coppice exec sb-1f2e3d4c-7 --user nobody -- sh -c 'id; pwd'

Exit codes: the program's own; 124 --timeout killed it, 125 something that is not the program failed (host, image,
options, output), 126 it can't be executed, 127 it is not there, 128+n signal n ended it.`,
    )
    .action(async (target: string, command: readonly string[], options: ExecCommandOptions) => {
      await using opened = await openTarget(target, options, parts);
      parts.onDone(await run(opened.guest, command, options, parts));
    });
}

export function addVariable(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Give NAME=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

async function run(
  guest: Guest,
  command: readonly string[],
  options: ExecCommandOptions,
  parts: ProgramParts,
): Promise<number> {
  const name = `command-${randomUUID()}`;
  using _ = parts.onSignal(passSignals(guest, name));
  const { user, cwd, env, timeout } = options;
  const running = guest.exec(command, {
    name,
    env,
    timeoutMs: Math.ceil(timeout * 1_000),
    signal: parts.signal,
    onStdout: (piece) => writeStream(process.stdout, "stdout", piece),
    onStderr: (piece) => writeStream(process.stderr, "stderr", piece),
    ...(process.stdin.isTTY === true ? {} : { stdin: process.stdin as AsyncIterable<Uint8Array> }),
    ...(user === undefined ? {} : { user }),
    ...(cwd === undefined ? {} : { cwd }),
  } satisfies ExecOptions);
  try {
    return exitCodeOfProgram(await running);
  } catch (error) {
    const code = error instanceof CoppiceError ? NOT_STARTED[error.code] : undefined;
    if (code === undefined || !(error instanceof CoppiceError)) throw error;
    logFailure(parts.terminal, error);
    return code;
  }
}

/** The first of each goes to the program, the second ends the command. */
function passSignals(guest: Guest, name: string): (signal: NodeJS.Signals) => boolean {
  const passed = new Set<string>();
  return (signal) => {
    if (passed.has(signal)) return false;
    passed.add(signal);
    guest
      .process(name)
      .kill(signal)
      .catch(() => undefined);
    return true;
  };
}

export function exitCodeOfProgram({
  exitCode,
  signal,
  timedOut,
}: Pick<ExecResult, "exitCode" | "signal" | "timedOut">): number {
  if (timedOut) return TIMED_OUT;
  if (exitCode !== null) return exitCode;
  const number = numberOf(signal ?? "");
  return number === undefined ? EXIT.notTheProgram : SIGNALLED + number;
}

/** Of a signal as agents name it: real-time signals count from the C library's first. */
function numberOf(signal: string): number | undefined {
  const realtime = /^SIGRTMIN\+(\d+)$/.exec(signal)?.[1];
  return realtime === undefined ? constants.signals[signal as NodeJS.Signals] : FIRST_REALTIME + Number(realtime);
}
