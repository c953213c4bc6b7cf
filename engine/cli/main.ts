#!/usr/bin/env node
/** The command line; exit-codes.ts has the codes that it ends with. */

import { CommanderError } from "commander";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { EXIT, exitCodeOf } from "./exit-codes.js";
import { listenForInterrupts } from "./interrupts.js";
import { isClosedPipe, watchOutput } from "./output.js";
import { makeProgram } from "./program.js";
import { logFailure, processTerminal, type Terminal } from "./terminal.js";

async function main(args: readonly string[]): Promise<number> {
  const terminal = processTerminal();
  const output = watchOutput();
  using interrupts = listenForInterrupts((text) => terminal.log(text));
  let exitCode: number = EXIT.done;
  const program = makeProgram({
    terminal,
    signal: AbortSignal.any([interrupts.signal, output.signal]),
    onSignal: (handler) => interrupts.redirect(handler),
    onDone: (code) => (exitCode = code),
  });
  let thrown: unknown;
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    thrown = error;
  }
  await output.flushed();
  if (thrown !== undefined && interrupts.signal.aborted) return EXIT.interrupted;
  const failure = output.failure ?? thrown;
  return failure === undefined ? exitCode : report(failure, args[0], terminal);
}

function report(error: unknown, command: string | undefined, terminal: Terminal): number {
  if (error instanceof CommanderError) {
    return error.exitCode === 0 ? EXIT.done : exitCodeOf("INVALID_ARGUMENT", command);
  }
  if (isClosedPipe(error)) return EXIT.closedPipe;
  if (!(error instanceof CoppiceError)) {
    // Not foreseen, so the stack is what a maintainer needs.
    terminal.log(error instanceof Error ? (error.stack ?? error.message) : String(error));
    return exitCodeOf(undefined, command);
  }
  logFailure(terminal, error);
  return exitCodeOf(error.code, command);
}

process.exitCode = await main(process.argv.slice(2));
