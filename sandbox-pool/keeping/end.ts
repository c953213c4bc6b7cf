/** Ends a host, and waits until nothing of it is left. */

import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { DEFAULTS } from "./defaults.js";
import { isRunning, signalProcess } from "./process-identity.js";
import type { RunningHost } from "./record.js";

const POLL_MS = 10;

export async function endHost(host: RunningHost): Promise<void> {
  // The keeper ends its program, keeps the console, and removes the directory.
  signalProcess(host.process, "SIGTERM");
  const started = performance.now();
  while (isRunning(host.process) && performance.now() - started < DEFAULTS.endTimeoutMs) {
    await sleep(POLL_MS);
  }
  // The program dies with its keeper.
  signalProcess(host.process, "SIGKILL");
  while (isRunning(host.process)) {
    await sleep(POLL_MS);
  }
  rmSync(host.directory, { recursive: true, force: true });
}
