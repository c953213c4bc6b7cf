/** A host's own words, for diagnosis. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { stateDirectory } from "../artifacts/paths.js";
import type { HostKind } from "./record.js";

/** Where the end of the console is kept when the host has ended. */
export function lastConsoleOf(kind: HostKind, instance: number): string {
  return join(stateDirectory(), instance === 0 ? `${kind}-console.log` : `${kind}-console.${instance}.log`);
}

/** Messages of the program and what it printed, while it runs. */
export function readLiveConsole(directory: string): string {
  const names = ["keeper.log", "messages.log", "console.previous.log", "console.log"];
  return names.map((name) => readText(join(directory, name))).join("");
}

/** Of the running host, or what the keeper kept of one that has ended. */
export function readConsole(host: {
  readonly directory: string;
  readonly kind: HostKind;
  readonly instance: number;
}): string {
  return readLiveConsole(host.directory) || readText(lastConsoleOf(host.kind, host.instance));
}

function readText(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
