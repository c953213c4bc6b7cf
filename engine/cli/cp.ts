/** `coppice cp`: files and directories between this machine and a sandbox that runs. */

import type { Command } from "commander";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { type HostKind, hostOption } from "./arguments.js";
import { type CopyReport, copyIn, copyOut, nameOfKind } from "./copy.js";
import { number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import { openSandbox } from "./guest-target.js";
import type { ProgramParts } from "./program.js";
import { printable, type Terminal } from "./terminal.js";

interface CpOptions {
  readonly host: HostKind;
  readonly json?: boolean;
}

/** More would bury what else there is to read. */
const MAX_WARNINGS = 20;

/** One end of a copy. */
interface Place {
  /** undefined: this machine. */
  readonly sandbox: string | undefined;
  readonly path: string;
}

export function addCp(program: Command, parts: ProgramParts): void {
  program
    .command("cp")
    .argument("<from>", "PATH here, or SANDBOX:PATH")
    .argument("<to>", "PATH here, or SANDBOX:PATH")
    .summary("copy files into or out of a sandbox")
    .description(
      "Copies a file or a whole directory into or out of a sandbox that runs. As with cp -r, what exists as a directory is copied into; links are copied as links. A file takes its place when all of it is there. Pipes, sockets and devices below a directory are skipped with a warning, and the command then ends with 1.",
    )
    .addOption(hostOption())
    .option("--json", "print what was copied as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  coppice cp ./src sb-1f2e3d4c-7:/srv/\n  coppice cp sb-1f2e3d4c-7:/var/log/app.log ./app.log",
    )
    .action(async (from: string, to: string, options: CpOptions) => parts.onDone(await cp(from, to, options, parts)));
}

async function cp(fromText: string, toText: string, options: CpOptions, parts: ProgramParts): Promise<number> {
  const [from, to] = [placeOf(fromText), placeOf(toText)];
  const sandbox = from.sandbox ?? to.sandbox;
  if (sandbox === undefined || (from.sandbox !== undefined && to.sandbox !== undefined)) {
    throw usage("One of the two must be SANDBOX:PATH, and one a path here");
  }
  await using target = await openSandbox(sandbox, options.host, parts);
  const work = { files: target.guest.files, signal: parts.signal };
  const copied = await (from.sandbox === undefined ? copyIn : copyOut)(work, from.path, to.path);
  warnOfSkipped(copied, parts.terminal);
  parts.terminal.print(options.json === true ? JSON.stringify(copied) : sentence(copied));
  return copied.skipped.length === 0 ? EXIT.done : EXIT.failed;
}

export function placeOf(text: string): Place {
  const match = /^(sb-[0-9a-f]+-\d+):(.*)$/s.exec(text);
  if (match === null) return { sandbox: undefined, path: text };
  const [, sandbox, path = ""] = match;
  if (!path.startsWith("/")) throw usage(`"${text}": a path in a guest begins with /`);
  return { sandbox, path };
}

function warnOfSkipped({ skipped }: CopyReport, terminal: Terminal): void {
  for (const { path, kind } of skipped.slice(0, MAX_WARNINGS)) {
    terminal.log(printable(`skipped ${path}: ${nameOfKind(kind)} can't be copied`));
  }
  if (skipped.length > MAX_WARNINGS) terminal.log(`skipped ${number(skipped.length - MAX_WARNINGS)} more such entries`);
}

function sentence({ files, directories, links, bytes, skipped }: CopyReport): string {
  const counts = [
    `${number(files)} ${files === 1 ? "file" : "files"}`,
    ...(directories === 0 ? [] : [`${number(directories)} ${directories === 1 ? "directory" : "directories"}`]),
    ...(links === 0 ? [] : [`${number(links)} ${links === 1 ? "link" : "links"}`]),
  ];
  const left = skipped.length === 0 ? "" : `; skipped ${number(skipped.length)}`;
  return `copied ${counts.join(", ")}, ${number(bytes)} bytes${left}`;
}

function usage(message: string): CoppiceError {
  return new CoppiceError(message, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "`coppice cp --help` has examples; `coppice ps` lists the sandboxes that run.",
  });
}
