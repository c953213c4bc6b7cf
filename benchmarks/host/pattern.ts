/** 64 MiB of known memory, which every child has to give back byte for byte. */

import { createHash } from "node:crypto";

import type { Sandbox, Template } from "../../index.js";
import { MEMORY_MIB } from "./measure.js";
import type { Bench } from "./scenario.js";

const PATTERN_MIB = 64;
const PATTERN_BYTES = PATTERN_MIB * 1024 * 1024;

/** Numbers in order, a line each: no two pages are equal, so that one in another's place is found. */
const FIRST_NUMBER = 10_000_000;
const LINE_BYTES = 9;
const LINES_AT_ONCE = 65_536;

let expected: string | undefined;

function digest(): string {
  const hash = createHash("md5");
  for (let bytes = 0; bytes < PATTERN_BYTES; bytes += LINES_AT_ONCE * LINE_BYTES) {
    const begin = FIRST_NUMBER + bytes / LINE_BYTES;
    const lines = Array.from({ length: LINES_AT_ONCE }, (_, index) => `${begin + index}\n`).join("");
    hash.update(lines.slice(0, PATTERN_BYTES - bytes));
  }
  return hash.digest("hex");
}

/** The pattern lies in a file in memory. */
export async function patternTemplate({ host, image, signal }: Bench): Promise<Template> {
  return await host.templates.create(image, {
    memoryMiB: MEMORY_MIB + 2 * PATTERN_MIB,
    key: "benchmarks/host pattern 2",
    warmUp: async (sandbox) => {
      const write = `seq ${FIRST_NUMBER} 99999999 | head -c ${PATTERN_BYTES} > /dev/shm/pattern`;
      await sandbox.exec(["/bin/sh", "-c", write], { timeoutMs: 120_000 });
    },
    signal,
  });
}

/** Reads every page of it in the guest. */
export async function verify(sandbox: Sandbox): Promise<void> {
  expected ??= digest();
  const { stdout } = await sandbox.exec(["/usr/bin/md5sum", "/dev/shm/pattern"], {
    timeoutMs: 120_000,
    deadlineMs: 180_000,
  });
  if (!stdout.startsWith(expected)) throw new Error(`a child's memory is not its template's: ${stdout.trim()}`);
}
