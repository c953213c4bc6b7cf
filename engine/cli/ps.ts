/** `coppice ps`: the sandboxes of a host, whoever owns them. */

import Table from "cli-table3";
import type { Command } from "commander";

import type { SandboxRow } from "../../sandbox-pool/index.js";
import { type HostKind, hostOption } from "./arguments.js";
import { age, mebibytes } from "./display.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";
import { connectRunningHost } from "./running-host.js";
import { printable } from "./terminal.js";

interface PsOptions {
  readonly host: HostKind;
  readonly json?: boolean;
}

export function addPs(program: Command, parts: ProgramParts): void {
  program
    .command("ps")
    .summary("the sandboxes of the running host, whoever owns them")
    .description("Lists the sandboxes of the running host with state, age, checkpoint, memory and owner.")
    .addOption(hostOption())
    .option("--json", "print it as JSON")
    .addHelpText("after", "\nExamples:\n  coppice ps\n  coppice ps --json | jq -r '.sandboxes[].id'")
    .action(async (options: PsOptions) => parts.onDone(await ps(options, parts)));
}

async function ps(options: PsOptions, parts: ProgramParts): Promise<number> {
  const { terminal, signal } = parts;
  await using host = await connectRunningHost(options.host, parts);
  const sandboxes = (await host?.inventory({ memory: true, signal }))?.sandboxes ?? [];
  if (options.json === true) terminal.print(JSON.stringify({ sandboxes }));
  else if (host === undefined) terminal.print("no host is running");
  else terminal.print(sandboxes.length === 0 ? "no sandbox is running" : psTable(sandboxes));
  return EXIT.done;
}

export function psTable(sandboxes: readonly SandboxRow[]): string {
  const head = ["sandbox", "state", "age", "from", "memory", "owner"];
  const table = new Table({ head, style: { head: [], border: [] } });
  for (const { id, state, ageMs, checkpoint, memory, owner } of sandboxes) {
    const takes = memory === null ? "?" : mebibytes(memory.totalBytes);
    table.push([id, state, age(ageMs), checkpoint ?? "(booted)", takes, printable(`${owner.session} ${owner.client}`)]);
  }
  return table.toString();
}
