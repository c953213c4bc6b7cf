/** `coppice doctor`: what this machine can do, what is missing, and the command that adds it. */

import type { Command } from "commander";

import { type Check, type DoctorReport, diagnose } from "../../sandbox-pool/index.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";

export function addDoctor(program: Command, { terminal, signal, onDone }: ProgramParts): void {
  program
    .command("doctor")
    .summary("what this machine can do, what is missing, and the command that adds it")
    .description(
      "Looks at the machine: which host sandboxes would run on, what is missing, and the command that adds it. Ends with 3 where no host can be had.",
    )
    .option("--json", "print it as JSON")
    .addHelpText("after", "\nExamples:\n  coppice doctor\n  coppice doctor --json | jq .host")
    .action(async (options: { readonly json?: boolean }) => {
      const report = await diagnose({ signal });
      terminal.print(options.json === true ? JSON.stringify(report) : doctorText(report));
      onDone(report.host === "none" ? EXIT.noHost : EXIT.done);
    });
}

const MARKS: Readonly<Record<Check["severity"], string>> = {
  ok: "ok",
  note: "note",
  warning: "warn",
  problem: "MISSING",
};

const HOSTS: Readonly<Record<DoctorReport["host"], string>> = {
  kvm: "Sandboxes run on this machine's KVM.",
  carrier: "Sandboxes run in an emulated host: slower, and the same in behaviour.",
  none: "Sandboxes can not run here yet: see what is missing above.",
};

export function doctorText({ checks, host }: DoctorReport): string {
  const nameWidth = Math.max(...checks.map(({ name }) => name.length));
  const markWidth = Math.max(...Object.values(MARKS).map((mark) => mark.length));
  const lines = checks.flatMap(({ name, severity, message, remedy }) => {
    const head = `${MARKS[severity].padEnd(markWidth)}  ${name.padEnd(nameWidth)}  ${message}`;
    const indent = " ".repeat(markWidth + nameWidth + 4);
    return remedy === undefined ? [head] : [head, `${indent}to do: ${remedy}`];
  });
  return [...lines, "", HOSTS[host]].join("\n");
}
