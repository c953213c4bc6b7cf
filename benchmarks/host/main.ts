#!/usr/bin/env node
/** `npm run bench`: what checkpoints, forks and calls cost on this machine. */

import { dirname } from "node:path";

import { Command, CommanderError } from "commander";
import { type HostKind, hostKind, wholeNumber } from "../../engine/cli/arguments.js";
import { EXIT, exitCodeOf } from "../../engine/cli/exit-codes.js";
import { makeFolder, writeOutput } from "../../engine/cli/files.js";
import { CoppiceError, connectHost } from "../../index.js";
import { SCENARIOS } from "./operations.js";
import { runBench } from "./run.js";
import { listing, table } from "./table.js";

interface Options {
  readonly only?: string;
  readonly n: number;
  readonly json?: string;
  readonly list?: boolean;
  readonly host: HostKind;
}

const DEFAULT_ROUNDS = 200;

/** Names that the option asks for: those that begin with one of its parts, each of which must be a beginning. */
function selection(option: string | undefined): (name: string) => boolean {
  if (option === undefined) return () => true;
  const parts = option.split(",").map((part) => part.trim());
  const names = SCENARIOS.flatMap((scenario) => scenario.names);
  const unknown = parts.find((part) => part === "" || !names.some((name) => name.startsWith(part)));
  if (unknown !== undefined) {
    throw new CoppiceError(`--only: no operation begins with '${unknown}'`, {
      code: "INVALID_ARGUMENT",
      faultDomain: "user",
      remedy: "`npm run bench -- --list` names them; a beginning of a name stands for all that begin so.",
    });
  }
  return (name) => parts.some((part) => name.startsWith(part));
}

async function bench(options: Options, signal: AbortSignal): Promise<void> {
  if (options.list === true) {
    console.log(listing(SCENARIOS));
    return;
  }
  const only = selection(options.only);
  const scenarios = SCENARIOS.filter(({ names }) => names.some(only));
  // Before minutes of measuring, not after them.
  if (options.json !== undefined) await makeFolder(dirname(options.json));
  const log = (message: string): void => console.error(message);
  await using host = await connectHost({ kind: options.host, signal, onProgress: log });
  const image = await host.images.build({ debian: {} }, { signal, onProgress: log });
  const onRound = (done: number, of: number): void => {
    if (done % 10 === 0 || done === of) log(`  ${done} of ${of} rounds`);
  };
  const report = await runBench({ host, image, scenarios, rounds: options.n, only, signal, onRound });
  console.log(table(report));
  if (options.json !== undefined) await writeOutput(options.json, `${JSON.stringify(report, null, 2)}\n`);
}

const controller = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => controller.abort());

const program = new Command("npm run bench --")
  .exitOverride()
  .description(
    "Measures what checkpoints, forks and calls cost, each to the first reply of a guest, as a client sees it.",
  )
  .option("--only <names>", "operations to measure, with commas between; a beginning of a name will do")
  .option(
    "--n <rounds>",
    "rounds; operations that take seconds run in one of many",
    wholeNumber(1, 100_000),
    DEFAULT_ROUNDS,
  )
  .option("--json <file>", "write the report for programs to this file")
  .option("--list", "name the operations, and measure nothing")
  .option("--host <host>", "auto, kvm, carrier or coppice://HOST:PORT", hostKind, "auto")
  .action(async (options: Options) => await bench(options, controller.signal));

try {
  await program.parseAsync();
} catch (error) {
  if (controller.signal.aborted) {
    process.exitCode = EXIT.interrupted;
  } else if (error instanceof CommanderError) {
    // It has said what was wrong.
    process.exitCode = error.exitCode === 0 ? EXIT.done : EXIT.usage;
  } else {
    const remedy = error instanceof CoppiceError ? `\n  ${error.remedy}` : "";
    console.error(`${error instanceof Error ? error.message : String(error)}${remedy}`);
    process.exitCode = exitCodeOf(error instanceof CoppiceError ? error.code : undefined);
  }
}
