/** Where a command writes: results to stdout, everything about how it goes to stderr. */

import type { CoppiceError } from "../../sandbox-pool/index.js";

export interface Terminal {
  /** Results, for people and for pipes. */
  print(text: string): void;
  /** How it goes; never part of a result. */
  log(text: string): void;
  /** Whether stderr is a terminal that can be drawn on. */
  readonly isInteractive: boolean;
  readonly columns: number;
}

/** Characters that would move the cursor or worse; text of guests is shown in terminals. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

export function printable(text: string): string {
  return text.replace(CONTROL, "");
}

/** An error as a person reads it: what, its code, and what to do. */
export function logFailure(terminal: Terminal, { message, code, remedy }: CoppiceError): void {
  terminal.log(`error: ${printable(message)} (${code})`);
  terminal.log(`  to go on: ${printable(remedy)}`);
}

export function processTerminal(): Terminal {
  return {
    print: (text) => void process.stdout.write(`${text}\n`),
    log: (text) => void process.stderr.write(`${text}\n`),
    isInteractive: process.stderr.isTTY === true && process.env["TERM"] !== "dumb",
    columns: process.stderr.columns ?? 80,
  };
}
