#!/usr/bin/env node
/** The command line. Exit codes: 0 done, 1 failed, 2 usage, 3 no usable host, 4 nothing found, 130 interrupted. */

import { CommanderError } from "commander";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { EXIT, exitCodeOf } from "./exit-codes.js";
import { listenForInterrupts } from "./interrupts.js";
import { makeProgram } from "./program.js";
import { printable, processTerminal, type Terminal } from "./terminal.js";

async function main(args: readonly string[]): Promise<number> {
  const terminal = processTerminal();
  using interrupts = listenForInterrupts((text) => terminal.log(text));
  let exitCode: number = EXIT.done;
  const program = makeProgram({
    terminal,
    signal: interrupts.signal,
    onSignal: (handler) => interrupts.redirect(handler),
    onDone: (code) => (exitCode = code),
  });
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    return report(error, terminal, interrupts.signal);
  }
}

function report(error: unknown, terminal: Terminal, signal: AbortSignal): number {
  if (signal.aborted) return EXIT.interrupted;
  if (!(error instanceof CoppiceError)) {
    // Not foreseen, so the stack is what a maintainer needs.
    terminal.log(error instanceof Error ? (error.stack ?? error.message) : String(error));
    return EXIT.failed;
  }
  terminal.log(`error: ${printable(error.message)} (${error.code})`);
  if (error.remedy !== undefined) terminal.log(`  to go on: ${printable(error.remedy)}`);
  return exitCodeOf(error.code);
}

// A pipe that is closed by its reader, such as `| head`, is no failure of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(EXIT.done);
});

process.exitCode = await main(process.argv.slice(2));
