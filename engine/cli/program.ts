/** Words and options of the command line. */

import { Command } from "commander";
import { hostOption, positiveNumber, wholeNumber } from "./arguments.js";
import { addCheckpoints } from "./checkpoints.js";
import { addCp } from "./cp.js";
import { DEMO_DEFAULTS, type DemoOptions, demo } from "./demo.js";
import { addDoctor } from "./doctor.js";
import { addExec } from "./exec.js";
import { addHostCommands } from "./host.js";
import { addImageCommands } from "./image.js";
import type { Interrupts } from "./interrupts.js";
import { addPs } from "./ps.js";
import { addShell } from "./shell/command.js";
import type { Terminal } from "./terminal.js";
import { packageVersion } from "./version.js";

export interface ProgramParts {
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
  /** Gives signals to the command, until what this returns is disposed. */
  readonly onSignal: Interrupts["redirect"];
  /** Receives the exit code of the command that ran. */
  readonly onDone: (exitCode: number) => void;
}

/** A day; a longer demonstration is a mistake in the unit. */
const MAX_MINUTES = 24 * 60;

export function makeProgram(parts: ProgramParts): Command {
  const program = new Command("coppice")
    .description("Explores environments that are real Linux machines, forked instead of restarted.")
    .version(packageVersion(), "-V, --version")
    .addHelpText(
      "after",
      `
Environment:
  COPPICE_HOST    the host where --host is not given: kvm, carrier or coppice://HOST:PORT
  COPPICE_TOKEN   the token that a host on another machine asks for

Exit codes: 0 done, 1 failed, 2 wrong words or options, 3 no usable host, 4 nothing found, 5 output can't be written,
130 interrupted, 141 nobody reads the output. exec and shell: the program's, or 125.`,
    )
    .showHelpAfterError("(--help after the command shows its options and examples)")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => parts.terminal.print(text.trimEnd()),
      writeErr: (text) => parts.terminal.log(text.trimEnd()),
    });
  addDemo(program, parts);
  addDoctor(program, parts);
  addHostCommands(program, parts);
  addImageCommands(program, parts);
  addShell(program, parts);
  addExec(program, parts);
  addCp(program, parts);
  addPs(program, parts);
  addCheckpoints(program, parts);
  return program;
}

function addDemo(program: Command, { terminal, signal, onDone }: ProgramParts): void {
  const { seed, workers, inFlight, out, steps } = DEMO_DEFAULTS;
  program
    .command("demo")
    .summary("explore Colossal Cave with Go-Explore, and compare with random play")
    .description(
      `Explores the game Colossal Cave Adventure in forked microVMs, then plays as many random steps for comparison, replays ` +
        `the best trajectory from the start as a proof, and draws the map that was found.`,
    )
    .option(
      "--steps <n>",
      `environment steps to explore (default: ${steps}, or no limit with --minutes)`,
      wholeNumber(1),
    )
    .option("--minutes <m>", "minutes to explore; the random control comes after them", positiveNumber(MAX_MINUTES))
    .option("--seed <n>", "equal seeds give equal trees", wholeNumber(0), seed)
    .option("--workers <n>", "worker threads; they change the speed, not the result", wholeNumber(1, 64), workers)
    .option("--in-flight <n>", "trials under way at once; part of the result", wholeNumber(1, 1024), inFlight)
    .option("--out <dir>", "folder for map.svg, tree.json, trajectory.txt, summary.json and ledger.sqlite", out)
    .option("--json <file>", "write the summary for programs to this file too")
    .addOption(hostOption())
    .addHelpText(
      "after",
      `
Examples:
  coppice demo                             ${steps} steps, a few minutes
  coppice demo --minutes 1 --seed 3        another cave run, one minute of exploration
  coppice demo --steps 500 --json out.json --out run-1
  coppice demo --workers 1 --host carrier  in an emulated host, even where KVM works`,
    )
    .action(async (options: DemoOptions) => onDone(await demo(options, terminal, signal)));
}
