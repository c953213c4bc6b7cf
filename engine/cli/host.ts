/** `coppice host …`: the machine, real or emulated, that sandboxes run on. */

import Table from "cli-table3";
import { type Command, Option } from "commander";

import { connectHost, type HostInfo, type HostStats } from "../../sandbox-pool/index.js";
import { type HostKind, hostKind } from "./arguments.js";
import { number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";

interface HostOptions {
  readonly host: HostKind;
  readonly json?: boolean;
}

export function addHostCommands(program: Command, parts: ProgramParts): void {
  const host = program.command("host").description("Starts, stops and looks at the host that sandboxes run on.");
  withHost(host.command("stats"))
    .description("What runs on the host, and how much memory it has left.")
    .option("--json", "print it as JSON")
    .addHelpText("after", "\nExample:\n  coppice host stats --json")
    .action(async (options: HostOptions) => parts.onDone(await stats(options, parts)));
}

function withHost(command: Command): Command {
  const option = new Option("--host <host>", "auto, kvm, carrier or coppice://HOST:PORT");
  return command.addOption(option.argParser(hostKind).default("auto"));
}

async function stats(options: HostOptions, { terminal, signal }: ProgramParts): Promise<number> {
  await using host = await connectHost({ kind: options.host, signal, onProgress: (text) => terminal.log(text) });
  const found = await host.stats({ signal });
  terminal.print(options.json === true ? JSON.stringify({ ...host.info, ...found }) : statsTable(host.info, found));
  return EXIT.done;
}

function statsTable(info: HostInfo, found: HostStats): string {
  const table = new Table({ style: { head: [], border: [] } });
  const { sandboxes, checkpoints, memory, counters } = found;
  const mebibytes = (bytes: number): string => `${number(Math.round(bytes / 2 ** 20))} MiB`;
  const list = (counts: Readonly<Record<string, number>>): string =>
    Object.entries(counts)
      .map(([name, count]) => `${number(count)} ${name}`)
      .join(", ");
  table.push(
    ["host", `${info.kind}, ${info.cpus} CPUs, coppiced ${info.version}`],
    ["memory", `${mebibytes(memory.availableBytes)} of ${mebibytes(memory.totalBytes)} available`],
    ["sessions", number(found.sessions)],
    ["sandboxes", list(sandboxes)],
    ["checkpoints", list(checkpoints)],
    ["since start", list(counters)],
  );
  return table.toString();
}
