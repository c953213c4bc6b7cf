/** The host that runs already: looking at it must not start one. */

import { setTimeout as sleep } from "node:timers/promises";

import { type ConnectOptions, CoppiceError, connectHost, type Host, hostStatus } from "../../sandbox-pool/index.js";
import { type HostKind, isRemote } from "./arguments.js";
import type { ProgramParts } from "./program.js";

/** A busy host is waited for about as long as a person waits. */
const BUSY_ATTEMPTS = 5;
const BUSY_PAUSE_MS = 1_000;

/** undefined: none runs. One on another machine is taken to run. */
export async function connectRunningHost(
  wanted: HostKind,
  { terminal, signal }: Pick<ProgramParts, "terminal" | "signal">,
): Promise<Host | undefined> {
  const named = wanted === "auto" ? process.env["COPPICE_HOST"] : wanted;
  const kind = named !== undefined && isRemote(named) ? named : await runningKind(wanted);
  if (kind === undefined) return undefined;
  return await connectPatiently({ kind: kind as HostKind, pool: { maxReady: 0 } }, { terminal, signal });
}

/** As `connectHost`, and again for a while where a host runs that is too busy to answer. */
export async function connectPatiently(
  options: Omit<ConnectOptions, "signal" | "onProgress">,
  { terminal, signal }: Pick<ProgramParts, "terminal" | "signal">,
): Promise<Host> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await connectHost({ ...options, signal, onProgress: (text) => terminal.log(text) });
    } catch (error) {
      // It runs and somebody uses it: it is only busy.
      const isBusy = [error, (error as Error).cause].some(
        (one) => one instanceof CoppiceError && one.code === "HOST_UNRESPONSIVE",
      );
      if (!isBusy || attempt === BUSY_ATTEMPTS) throw error;
      terminal.log("the host is busy, tries again");
      await sleep(BUSY_PAUSE_MS, undefined, { signal });
    }
  }
}

/** Throws `HOST_NOT_RUNNING` where there is none. */
export async function requireRunningHost(
  wanted: HostKind,
  parts: Pick<ProgramParts, "terminal" | "signal">,
): Promise<Host> {
  const host = await connectRunningHost(wanted, parts);
  if (host !== undefined) return host;
  throw new CoppiceError("No host is running, so there is no sandbox", {
    code: "HOST_NOT_RUNNING",
    faultDomain: "user",
    remedy: "Sandboxes live as long as the program that made them: `coppice shell debian` makes one.",
  });
}

async function runningKind(wanted: HostKind): Promise<string | undefined> {
  const running = await hostStatus();
  return running.find(({ kind }) => wanted === "auto" || wanted === kind)?.kind;
}
