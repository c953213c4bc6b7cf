/** How much memory a carrier may have at most. QEMU takes it page by page, as it is used. */

import { readFileSync } from "node:fs";

import { CoppiceError } from "../errors.js";
import { DEFAULTS } from "./defaults.js";

export function chooseMemoryMiB(requested?: number): number {
  const value = requested ?? fromEnvironment();
  if (value !== undefined) {
    if (!Number.isInteger(value) || value < DEFAULTS.leastMemoryMiB) {
      throw new CoppiceError(`Carrier memory of ${value} MiB is not possible`, {
        code: "INVALID_ARGUMENT",
        faultDomain: "user",
        remedy: `COPPICE_CARRIER_MEMORY_MIB must be a whole number of at least ${DEFAULTS.leastMemoryMiB}.`,
      });
    }
    return value;
  }
  const availableMiB = availableMemoryMiB();
  if (availableMiB < DEFAULTS.minMemoryMiB) {
    throw new CoppiceError(
      `Machine has ${availableMiB} MiB of memory available, a carrier needs ${DEFAULTS.minMemoryMiB}`,
      {
        code: "MEMORY_TOO_SMALL",
        faultDomain: "host",
        remedy: "End other programs, or set COPPICE_CARRIER_MEMORY_MIB to less (512 holds a few small sandboxes).",
      },
    );
  }
  const share = Math.floor(availableMiB * DEFAULTS.memoryShare);
  return Math.min(DEFAULTS.maxMemoryMiB, Math.max(DEFAULTS.minMemoryMiB, share));
}

function fromEnvironment(): number | undefined {
  const text = process.env["COPPICE_CARRIER_MEMORY_MIB"];
  return text === undefined || text === "" ? undefined : Number(text);
}

/** MemAvailable, or what a container's limit leaves where that is less. */
export function availableMemoryMiB(): number {
  const kib = Number(/^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "latin1"))?.[1] ?? 0);
  return Math.floor(Math.min(kib * 1024, containerLimitBytes()) / (1024 * 1024));
}

function containerLimitBytes(): number {
  for (const [limit, usage] of [
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"],
    ["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"],
  ] as const) {
    try {
      const left = Number(readFileSync(limit, "latin1")) - Number(readFileSync(usage, "latin1"));
      if (Number.isFinite(left)) {
        return left;
      }
    } catch {
      // No such limit here.
    }
  }
  return Number.POSITIVE_INFINITY;
}
