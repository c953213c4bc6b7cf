/** Whether this machine's KVM can run Linux, decided by running a guest: an openable /dev/kvm proves nothing. */

import { constants } from "node:fs";
import { access, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { z } from "zod";

import { findNativePrograms } from "../artifacts/native.js";
import { throwIfAborted } from "../artifacts/tools.js";
import { runtimeDirectory } from "../keeping/index.js";
import { runProgram } from "./run-program.js";

export interface KvmProbe {
  readonly usable: boolean;
  /** A sentence. */
  readonly reason: string;
  readonly remedy?: string;
}

export interface ProbeOptions {
  /** Where the native programs are. Default: COPPICE_NATIVE_DIR, or cargo's output below the package. */
  readonly nativeDirectory?: string;
  readonly signal?: AbortSignal | undefined;
  /** Ask the machine again, though it was asked a short time ago. Default: false. */
  readonly fresh?: boolean;
}

const DEVICE = "/dev/kvm";

/** The probe gives up after 5 s by itself; a program that hangs in the kernel is killed. */
const PROBE_TIMEOUT_MS = 8_000;

/** Modules and permissions may change, though rarely; the probe takes a tenth of a second at most where KVM is real. */
const BELIEVED_MS = 10 * 60 * 1_000;

const answerSchema = z.object({ usable: z.boolean(), reason: z.string() });
const recordSchema = answerSchema.extend({ machine: z.string(), at: z.number() });

/** Runs the probe, or takes its last answer when that is a few minutes old. Throws `NATIVE_PROGRAM_MISSING`, `ABORTED`. */
export async function probeKvm(options: ProbeOptions = {}): Promise<KvmProbe> {
  const missing = await whatIsMissing();
  if (missing !== undefined) {
    return missing;
  }
  const { probe } = await findNativePrograms(options.nativeDirectory);
  const file = join(runtimeDirectory(), "kvm-probe.json");
  const machine = await describeMachine(probe);
  const known = options.fresh === true ? undefined : await readRecord(file, machine);
  if (known !== undefined) {
    return withRemedy(known);
  }
  const answer = await runProbe(probe, options.signal);
  const record = { ...answer, machine, at: Date.now() };
  await writeFile(`${file}.${process.pid}`, JSON.stringify(record), { mode: 0o600 });
  await rename(`${file}.${process.pid}`, file);
  return withRemedy(answer);
}

async function whatIsMissing(): Promise<KvmProbe | undefined> {
  if ((await stat(DEVICE).catch(() => undefined)) === undefined) {
    return {
      usable: false,
      reason: `There is no ${DEVICE}`,
      remedy:
        "On bare metal load kvm-amd or kvm-intel (modprobe); in a virtual machine nested virtualization must be on.",
    };
  }
  try {
    await access(DEVICE, constants.R_OK | constants.W_OK);
    return undefined;
  } catch {
    return {
      usable: false,
      reason: `This user may not open ${DEVICE}`,
      remedy: `Join its group and log in again: sudo usermod -aG kvm "$USER"`,
    };
  }
}

async function runProbe(probe: string, signal: AbortSignal | undefined): Promise<KvmProbe> {
  const result = await runProgram(probe, [], { timeoutMs: PROBE_TIMEOUT_MS, signal });
  throwIfAborted(signal, "The probe of KVM");
  if (result.timedOut) {
    return { usable: false, reason: "The probe hangs, and does not end by itself" };
  }
  try {
    return answerSchema.parse(JSON.parse(result.stdout));
  } catch {
    return { usable: false, reason: `The probe died (${result.signal ?? `exit code ${result.exitCode}`})` };
  }
}

function withRemedy(answer: { readonly usable: boolean; readonly reason: string }): KvmProbe {
  const { usable, reason } = answer;
  return usable
    ? { usable, reason }
    : {
        usable,
        reason,
        remedy: "Use the emulated host, as `auto` does by itself. A machine with real KVM is ten times faster.",
      };
}

/** What the answer depends on: this boot, this device, this probe. */
async function describeMachine(probe: string): Promise<string> {
  const bootId = (await readFile("/proc/sys/kernel/random/boot_id", "latin1")).trim();
  const device = await stat(DEVICE);
  const program = await stat(probe);
  return [bootId, device.rdev, device.ino, probe, program.size, program.mtimeMs].join(" ");
}

async function readRecord(file: string, machine: string): Promise<KvmProbe | undefined> {
  try {
    const record = recordSchema.parse(JSON.parse(await readFile(file, "utf8")));
    const age = Date.now() - record.at;
    return record.machine === machine && age >= 0 && age < BELIEVED_MS ? record : undefined;
  } catch {
    return undefined;
  }
}
