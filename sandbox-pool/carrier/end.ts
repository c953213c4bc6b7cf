/** Ends a carrier, and waits until nothing of it is left. */

import { existsSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { DEFAULTS } from "./defaults.js";
import { isRunning, signalProcess } from "./process-identity.js";
import type { RunningCarrier } from "./record.js";

const POLL_MS = 10;

export async function endCarrier(carrier: RunningCarrier): Promise<void> {
  // Inside there is nothing to save: the keeper ends QEMU, keeps the console, and removes the directory.
  signalProcess(carrier.process, "SIGTERM");
  const started = performance.now();
  while (isRunning(carrier.process) && performance.now() - started < DEFAULTS.endTimeoutMs) {
    await sleep(POLL_MS);
  }
  // QEMU dies with its keeper.
  signalProcess(carrier.process, "SIGKILL");
  while (isRunning(carrier.process)) {
    await sleep(POLL_MS);
  }
  if (existsSync(carrier.directory)) {
    rmSync(carrier.directory, { recursive: true, force: true });
  }
}
