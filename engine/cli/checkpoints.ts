/** `coppice checkpoints …`: the checkpoints of a host, whoever owns them. */

import type { Command } from "commander";

import type { CheckpointRow, HostInventory, SandboxRow } from "../../sandbox-pool/index.js";
import { type HostKind, hostOption } from "./arguments.js";
import { age, mebibytes, number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";
import { connectRunningHost } from "./running-host.js";
import { printable } from "./terminal.js";

interface TreeOptions {
  readonly host: HostKind;
  readonly json?: boolean;
}

export function addCheckpoints(program: Command, parts: ProgramParts): void {
  const checkpoints = program.command("checkpoints").description("Looks at the checkpoints of the running host.");
  checkpoints
    .command("tree")
    .summary("checkpoints and what was forked from them, as a tree")
    .description("Draws the checkpoints of the running host as trees, with the sandboxes that were forked from them.")
    .addOption(hostOption())
    .option("--json", "print checkpoints and sandboxes as JSON")
    .addHelpText("after", "\nExamples:\n  coppice checkpoints tree\n  coppice checkpoints tree --json")
    .action(async (options: TreeOptions) => parts.onDone(await tree(options, parts)));
}

async function tree(options: TreeOptions, parts: ProgramParts): Promise<number> {
  const { terminal, signal } = parts;
  await using host = await connectRunningHost(options.host, parts);
  const inventory = (await host?.inventory({ memory: true, signal })) ?? { sandboxes: [], checkpoints: [] };
  if (options.json === true) terminal.print(JSON.stringify(inventory));
  else if (host === undefined) terminal.print("no host is running");
  else terminal.print(inventory.checkpoints.length === 0 ? "no checkpoint is there" : drawTree(inventory));
  return EXIT.done;
}

/** Checkpoints whose parent was dropped are roots too. Sandboxes are leaves. */
export function drawTree({ checkpoints, sandboxes }: HostInventory): string {
  const known = new Set(checkpoints.map(({ id }) => id));
  const lines: string[] = [];
  const draw = (checkpoint: CheckpointRow, first: string, rest: string): void => {
    lines.push(first + describe(checkpoint));
    const children = [
      ...checkpoints.filter(({ parent }) => parent === checkpoint.id),
      ...sandboxes.filter((sandbox) => sandbox.checkpoint === checkpoint.id),
    ];
    children.forEach((child, index) => {
      const isLast = index === children.length - 1;
      const [branch, below] = isLast ? ["└── ", "    "] : ["├── ", "│   "];
      if ("dirtyPages" in child) draw(child, rest + branch, rest + below);
      else lines.push(rest + branch + describeSandbox(child));
    });
  };
  for (const checkpoint of checkpoints) {
    if (checkpoint.parent === null || !known.has(checkpoint.parent)) draw(checkpoint, "", "");
  }
  return lines.join("\n");
}

function describe({ id, name, owner, parent, dirtyPages, ageMs, memory }: CheckpointRow): string {
  const facts = [
    `${number(dirtyPages)} pages`,
    ...(memory === null ? [] : [mebibytes(memory.totalBytes)]),
    age(ageMs),
    owner === null ? "shared" : `of ${owner.session}`,
    ...(parent === null ? ["from a boot"] : []),
  ];
  return printable(`${id}${name === null ? "" : ` "${name}"`}  (${facts.join(", ")})`);
}

function describeSandbox({ id, state, ageMs, memory, owner }: SandboxRow): string {
  const takes = memory === null ? [] : [mebibytes(memory.totalBytes)];
  return printable(`${id}  (sandbox, ${[state, ...takes, age(ageMs), `of ${owner.session}`].join(", ")})`);
}
