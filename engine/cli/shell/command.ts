/** `coppice shell`: an interactive shell in a fresh microVM that can be forked and rewound. */

import type { Command } from "commander";

import { CoppiceError } from "../../../sandbox-pool/index.js";
import { guestUser, type HostKind, hostOption } from "../arguments.js";
import { exitCodeOfProgram, MEMORY_HELP, memoryMiB, USER_HELP } from "../exec.js";
import { EXIT } from "../exit-codes.js";
import { bootTemplate } from "../guest-target.js";
import { IMAGE_HELP } from "../image-argument.js";
import type { ProgramParts } from "../program.js";
import type { TerminalSize } from "./place.js";
import { RESET_SCREEN } from "./screen.js";
import { Shell } from "./shell.js";

interface ShellCommandOptions {
  readonly host: HostKind;
  readonly memory?: number;
  readonly user?: string;
}

/** The guest's best shell. */
const LOGIN = ["/bin/sh", "-c", "cd; if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"];

export function addShell(program: Command, parts: ProgramParts): void {
  program
    .command("shell")
    .argument("<image>", "what to boot; see below")
    .argument("[command...]", "program to run instead of a shell, after --")
    .summary("an interactive shell in a fresh microVM")
    .description(
      "Opens an interactive shell in a fresh microVM. After Ctrl-]: c takes a checkpoint, f forks into it, r rewinds, s switches, l lists, h helps, q leaves. All of it ends with the command.",
    )
    .addOption(hostOption())
    .option("--memory <mib>", MEMORY_HELP, memoryMiB)
    .option("--user <user>", USER_HELP, guestUser)
    .addHelpText(
      "after",
      `${IMAGE_HELP}

Examples:
  coppice shell debian
  coppice shell debian:gdb,gcc,libc6-dev --memory 512
  coppice shell debian:python3 -- python3`,
    )
    .action(async (image: string, command: readonly string[], options: ShellCommandOptions) => {
      parts.onDone(await shell(image, command, options, parts));
    });
}

async function shell(
  image: string,
  command: readonly string[],
  options: ShellCommandOptions,
  parts: ProgramParts,
): Promise<number> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) throw noTerminal();
  const { host, template } = await bootTemplate(image, options, parts);
  await using _ = host;
  const sandbox = await template.fork({ signal: parts.signal });
  const running = new Shell({
    template,
    argv: command.length === 0 ? LOGIN : command,
    user: options.user,
    term: process.env["TERM"] ?? "xterm",
    write: (bytes) => void process.stdout.write(bytes),
    size: windowSize,
    exitCode: (exit) => exitCodeOfProgram({ ...exit, timedOut: false }),
  });
  using _terminal = takeTerminal(running);
  void host.ended.then((reason) => running.hostEnded(reason));
  const onAbort = (): void => running.end(EXIT.interrupted);
  parts.signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await running.run(sandbox);
  } finally {
    parts.signal.removeEventListener("abort", onAbort);
    await running.close();
  }
}

/** Until it is disposed, every key goes to the shell as it is. */
function takeTerminal(shell: Shell): Disposable {
  const { stdin, stdout } = process;
  const onData = (bytes: Buffer): void => shell.type(bytes);
  const onResize = (): void => shell.resized();
  stdin.setRawMode(true);
  stdin.on("data", onData);
  stdout.on("resize", onResize);
  return {
    [Symbol.dispose]: () => {
      stdin.off("data", onData);
      stdout.off("resize", onResize);
      stdin.setRawMode(false);
      stdin.pause();
      stdout.write(`${RESET_SCREEN}\r\n`);
    },
  };
}

function windowSize(): TerminalSize {
  // A terminal that does not know its size says 0.
  return { columns: process.stdout.columns || 80, rows: process.stdout.rows || 24 };
}

function noTerminal(): CoppiceError {
  return new CoppiceError("A shell needs a terminal, and this is none", {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "Run it in a terminal; for scripts there is `coppice exec`.",
  });
}
