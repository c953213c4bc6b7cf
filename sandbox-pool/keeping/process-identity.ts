/** Which process a record means: ids are used again, so the time of the start is compared too. */

import { readFileSync } from "node:fs";

export interface ProcessIdentity {
  readonly pid: number;
  /** Boot id and clock ticks since that boot, from /proc. */
  readonly started: string;
}

/** undefined where no such process runs; one that has ended and was not collected yet does not run. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field, the name, may hold anything, spaces and parentheses too.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state] = fields;
    const ticks = fields[19];
    if (state === undefined || ticks === undefined || state === "Z" || state === "X") {
      return undefined;
    }
    const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    return { pid, started: `${bootId}/${ticks}` };
  } catch {
    return undefined;
  }
}

export function isRunning(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.started === identity.started;
}

/** Sends a signal unless the process has ended; one that has taken its id is left alone. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isRunning(identity)) {
    return;
  }
  try {
    process.kill(identity.pid, signal);
  } catch {
    // It has ended since.
  }
}
