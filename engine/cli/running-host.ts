/** The host that runs already: looking at it must not start one. */

import { CoppiceError, connectHost, type Host, hostStatus } from "../../sandbox-pool/index.js";
import type { HostKind } from "./arguments.js";
import type { ProgramParts } from "./program.js";

/** undefined: none runs. One on another machine is taken to run. */
export async function connectRunningHost(
  wanted: HostKind,
  { terminal, signal }: Pick<ProgramParts, "terminal" | "signal">,
): Promise<Host | undefined> {
  const named = wanted === "auto" ? process.env["COPPICE_HOST"] : wanted;
  const kind = named?.startsWith("coppice://") ? named : await runningKind(wanted);
  if (kind === undefined) return undefined;
  return await connectHost({
    kind: kind as Exclude<HostKind, "auto">,
    signal,
    onProgress: (text) => terminal.log(text),
    pool: { maxReady: 0 },
  });
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
