/** `coppice host …`: the machine, real or emulated, that sandboxes run on. */

import Table from "cli-table3";
import { type Command, Option } from "commander";

import { hostStatus, startHost, stopHosts } from "../../sandbox-pool/index.js";
import { positiveNumber } from "./arguments.js";
import { number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import { addMetrics } from "./host-metrics.js";
import { addStats } from "./host-stats.js";
import type { ProgramParts } from "./program.js";

interface StartOptions extends JsonOption {
  readonly host: "auto" | "kvm" | "carrier";
  readonly idleMinutes: number;
}

interface JsonOption {
  readonly json?: boolean;
}

/** A day. */
const MAX_IDLE_MINUTES = 24 * 60;

/** Long enough to work with a host that was started on purpose, short enough to be forgotten. */
const IDLE_MINUTES = 30;

export function addHostCommands(program: Command, parts: ProgramParts): void {
  const host = program
    .command("host")
    .description(
      "Starts, stops and looks at the host that sandboxes run on: this machine's KVM, or an emulated machine.",
    );
  addStart(host, parts);
  host
    .command("stop")
    .description("Ends all hosts of this user, also those in use.")
    .option("--json", "print how many there were as JSON")
    .addHelpText("after", "\nExample:\n  coppice host stop")
    .action(async (options: JsonOption) => parts.onDone(await stop(options, parts)));
  host
    .command("status")
    .description("Which hosts run, since when, and who uses them.")
    .option("--json", "print it as JSON")
    .addHelpText("after", "\nExample:\n  coppice host status --json")
    .action(async (options: JsonOption) => parts.onDone(await status(options, parts)));
  addStats(host, parts);
  addMetrics(host, parts);
}

function addStart(host: Command, parts: ProgramParts): void {
  const kind = new Option("--host <host>", "which one").choices(["auto", "kvm", "carrier"]).default("auto");
  host
    .command("start")
    .description("Starts a host and leaves it running, so that the next run begins at once.")
    .addOption(kind)
    .option("--idle-minutes <m>", "end it after so long without use", positiveNumber(MAX_IDLE_MINUTES), IDLE_MINUTES)
    .option("--json", "print what runs now as JSON")
    .addHelpText("after", "\nExamples:\n  coppice host start\n  coppice host start --host carrier --idle-minutes 5")
    .action(async (options: StartOptions) => parts.onDone(await start(options, parts)));
}

async function start(options: StartOptions, { terminal, signal }: ProgramParts): Promise<number> {
  const { host: kind, idleMinutes } = options;
  const onProgress = (text: string): void => terminal.log(text);
  const {
    kind: made,
    pid,
    started,
  } = await startHost({
    kind,
    idleSeconds: Math.ceil(idleMinutes * 60),
    signal,
    onProgress,
  });
  if (options.json === true) {
    terminal.print(JSON.stringify({ kind: made, pid, started }));
    return EXIT.done;
  }
  const how = started
    ? `runs now, and ends after ${number(idleMinutes)} minutes without use`
    : "ran already, and keeps the idle time that it was started with";
  terminal.print(`${made} host (process ${pid}) ${how}`);
  return EXIT.done;
}

async function stop(options: JsonOption, { terminal, signal }: ProgramParts): Promise<number> {
  const count = await stopHosts({ signal });
  if (options.json === true) {
    terminal.print(JSON.stringify({ ended: count }));
    return EXIT.done;
  }
  terminal.print(count === 0 ? "no host was running" : `ended ${count === 1 ? "1 host" : `${count} hosts`}`);
  return EXIT.done;
}

async function status(options: JsonOption, { terminal }: ProgramParts): Promise<number> {
  const hosts = await hostStatus();
  if (options.json === true) {
    terminal.print(JSON.stringify({ hosts }));
    return EXIT.done;
  }
  if (hosts.length === 0) {
    terminal.print("no host is running");
    return EXIT.done;
  }
  const table = new Table({
    head: ["host", "process", "since", "in use by", "sessions"],
    style: { head: [], border: [] },
  });
  for (const { kind, pid, startedAt, users, sessions, isFull } of hosts) {
    const usedBy = users === 1 ? "1 process" : `${users} processes`;
    const silent = isFull ? "full: takes no more connections" : "does not answer";
    table.push([kind, String(pid), startedAt, usedBy, sessions === null ? silent : String(sessions)]);
  }
  terminal.print(table.toString());
  return EXIT.done;
}
