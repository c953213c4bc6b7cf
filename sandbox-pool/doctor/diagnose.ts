/** Looks at the machine: what it can do, what is missing, and the command that adds it. */

import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, statfs } from "node:fs/promises";
import { arch, cpus, totalmem } from "node:os";
import { join } from "node:path";

import { DEBIAN_KEYRING, requireKeyring } from "../artifacts/apt.js";
import { findNativePrograms } from "../artifacts/native.js";
import { cacheDirectory } from "../artifacts/paths.js";
import { findTool, TOOL_PACKAGES, type Tool } from "../artifacts/tools.js";
import { carrierStatus } from "../carrier/index.js";
import { availableMemoryMiB } from "../carrier/memory.js";
import { CoppiceError } from "../errors.js";
import { lastConsoleOf } from "../keeping/index.js";
import { probeKvm } from "./probe-kvm.js";
import type { Check, DoctorReport } from "./report.js";
import { runProgram } from "./run-program.js";

export interface DiagnoseOptions {
  readonly nativeDirectory?: string;
  readonly signal?: AbortSignal | undefined;
}

const GIB = 1024 ** 3;
/** Kernel, boot disks, and a handful of images. */
const WANTED_DISK_BYTES = 2 * GIB;
const WANTED_MEMORY_MIB = 2048;
const OLDEST_NODE: readonly [number, number] = [20, 19];
/** SVM of the emulated CPU is complete enough from here on. */
const OLDEST_QEMU: readonly [number, number] = [7, 0];
const COMMAND_TIMEOUT_MS = 10_000;

/** Tools without which no host can be set up, and those for images only. */
const CARRIER_TOOLS: readonly Tool[] = ["qemu-system-x86_64"];
const SETUP_TOOLS: readonly Tool[] = [
  "apt-get",
  "dpkg-deb",
  "cpio",
  "flock",
  "mke2fs",
  "mkfs.erofs",
  "mmdebstrap",
  "xz",
  "zstd",
];

export async function diagnose(options: DiagnoseOptions = {}): Promise<DoctorReport> {
  const kvm = await checkKvm(options);
  const qemu = await checkQemu(kvm.severity === "ok");
  const checks: Check[] = [
    await checkSystem(),
    checkProcessors(),
    checkMemory(),
    await checkDisk(),
    checkNode(),
    await checkRust(),
    await checkNative(options.nativeDirectory),
    ...checkTools(),
    checkKeyring(),
    checkUser(),
    kvm,
    qemu,
    ...(kvm.severity === "ok" ? [await checkCgroups()] : []),
    await checkCache(),
    await checkCarriers(),
  ];
  const host = kvm.severity === "ok" ? "kvm" : qemu.severity === "problem" ? "none" : "carrier";
  return { host, checks };
}

async function checkSystem(): Promise<Check> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  const name = /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(text)?.[1] ?? process.platform;
  const message = `${name}, ${arch()}`;
  if (process.platform !== "linux" || arch() !== "x64") {
    return problem("system", message, "Coppice runs on 64-bit x86 Linux only.");
  }
  if (!/^ID(_LIKE)?=.*(debian|ubuntu)/m.test(text)) {
    return {
      name: "system",
      severity: "warning",
      message,
      remedy: "Tested on Debian and Ubuntu; install the tools below by hand.",
    };
  }
  return ok("system", message);
}

function checkProcessors(): Check {
  const all = cpus();
  const message = `${all.length} × ${all[0]?.model.trim() ?? "unknown"}`;
  return all.length >= 2
    ? ok("processors", message)
    : { name: "processors", severity: "warning", message, remedy: "Two or more let engine and host work at once." };
}

function checkMemory(): Check {
  const available = availableMemoryMiB();
  const message = `${available} MiB available of ${Math.round(totalmem() / 1024 / 1024)} MiB`;
  if (available >= WANTED_MEMORY_MIB) {
    return ok("memory", message);
  }
  return problem(
    "memory",
    message,
    `End other programs, or set COPPICE_CARRIER_MEMORY_MIB below ${available} for a small emulated host.`,
  );
}

async function checkDisk(): Promise<Check> {
  const directory = cacheDirectory();
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(directory);
    const message = `${((bavail * bsize) / GIB).toFixed(1)} GiB free in ${directory}`;
    return bavail * bsize >= WANTED_DISK_BYTES
      ? ok("disk", message)
      : problem("disk", message, "Free some space, or point XDG_CACHE_HOME to a larger disk.");
  } catch (error) {
    return problem(
      "disk",
      `${directory} can't be used: ${messageOf(error)}`,
      "Point XDG_CACHE_HOME to a directory of your own.",
    );
  }
}

function checkNode(): Check {
  const version = process.versions.node;
  return isAtLeast(version, OLDEST_NODE)
    ? ok("node", version)
    : problem("node", version, `Install Node ${OLDEST_NODE.join(".")} or newer.`);
}

async function checkRust(): Promise<Check> {
  const cargo = findTool("cargo");
  if (cargo === undefined) {
    const remedy = "Needed to build the native programs: install it from https://rustup.rs";
    return { name: "rust", severity: "note", message: "no cargo on the PATH", remedy };
  }
  const { stdout } = await runProgram(cargo, ["--version"], { timeoutMs: COMMAND_TIMEOUT_MS });
  return ok("rust", stdout.trim() || cargo);
}

async function checkNative(directory: string | undefined): Promise<Check> {
  try {
    const { coppiced } = await findNativePrograms(directory);
    return ok("native programs", `in ${coppiced.slice(0, coppiced.lastIndexOf("/"))}`);
  } catch (error) {
    return problem("native programs", messageOf(error), remedyOf(error));
  }
}

function checkTools(): readonly Check[] {
  const missing = [...CARRIER_TOOLS, ...SETUP_TOOLS].filter((tool) => findTool(tool) === undefined);
  if (missing.length === 0) {
    return [ok("tools", "all installed")];
  }
  const packages = [...new Set(missing.map((tool) => TOOL_PACKAGES[tool]))].join(" ");
  return [
    problem("tools", `not installed: ${missing.join(", ")}`, `apt-get install --no-install-recommends ${packages}`),
  ];
}

function checkKeyring(): Check {
  try {
    requireKeyring();
    return ok("archive keys", DEBIAN_KEYRING);
  } catch (error) {
    return problem("archive keys", messageOf(error), remedyOf(error));
  }
}

function checkUser(): Check {
  return process.getuid?.() === 0
    ? ok("user", "root")
    : {
        name: "user",
        severity: "warning",
        message: "not root: images can't be built",
        remedy: "Build images once with sudo -E.",
      };
}

async function checkKvm(options: DiagnoseOptions): Promise<Check> {
  try {
    const probe = await probeKvm({ ...options, fresh: true });
    if (probe.usable) {
      return ok("kvm", "a guest ran as it should");
    }
    return {
      name: "kvm",
      severity: "warning",
      message: `not usable: ${probe.reason}`,
      ...(probe.remedy === undefined ? {} : { remedy: probe.remedy }),
    };
  } catch (error) {
    return {
      name: "kvm",
      severity: "warning",
      message: `can't be tried: ${messageOf(error)}`,
      remedy: remedyOf(error),
    };
  }
}

async function checkQemu(isKvmUsable: boolean): Promise<Check> {
  const severity = isKvmUsable ? "note" : "problem";
  const remedy = "apt-get install --no-install-recommends qemu-system-x86";
  const path = findTool("qemu-system-x86_64");
  if (path === undefined) {
    return { name: "qemu", severity, message: "not installed: no emulated host", remedy };
  }
  const run = (args: readonly string[]) => runProgram(path, args, { timeoutMs: COMMAND_TIMEOUT_MS });
  const version = /version (\d+\.\d+[.\d]*)/.exec((await run(["--version"])).stdout)?.[1];
  if (version === undefined) {
    return { name: "qemu", severity, message: `${path} does not say its version`, remedy };
  }
  const help = (await run(["-cpu", "help"])).stdout;
  if (!isAtLeast(version, OLDEST_QEMU) || !/\bsvm\b/.test(help)) {
    const message = `version ${version} can't emulate virtualization well enough`;
    return { name: "qemu", severity, message, remedy: `Install QEMU ${OLDEST_QEMU.join(".")} or newer.` };
  }
  return ok("qemu", `version ${version}, emulates SVM`);
}

/** Without it each start and end of a virtual machine waits for a grace period of the kernel: 10 ms each. */
async function checkCgroups(): Promise<Check> {
  const mounts = await readFile("/proc/self/mounts", "latin1").catch(() => "");
  const mount = mounts.split("\n").find((line) => line.split(" ")[2] === "cgroup2");
  if (mount === undefined) {
    return { name: "cgroups", severity: "note", message: "no cgroup2 is mounted" };
  }
  const [, where, , flags] = mount.split(" ");
  return flags?.split(",").includes("favordynmods") === true
    ? ok("cgroups", `cgroup2 on ${where}, favordynmods`)
    : {
        name: "cgroups",
        severity: "warning",
        message: `cgroup2 on ${where} without favordynmods: virtual machines start and end 10 ms slower`,
        remedy: `mount -o remount,favordynmods ${where}`,
      };
}

async function checkCache(): Promise<Check> {
  const count = async (kind: string) => {
    const names: readonly string[] = await readdir(join(cacheDirectory(), kind)).catch(() => []);
    return names.filter((name) => !name.startsWith(".")).length;
  };
  const [kernels, host, images] = [await count("kernels"), await count("host"), await count("images")];
  const message = `${kernels} kernels, ${host} boot files, ${images} images in ${cacheDirectory()}`;
  return kernels > 0
    ? ok("cache", message)
    : { name: "cache", severity: "note", message: `${message}: the first run needs the network` };
}

async function checkCarriers(): Promise<Check> {
  try {
    const running = await carrierStatus();
    const text = running.map(
      (carrier) =>
        `process ${carrier.pid}, ${carrier.users} users, ${carrier.sessions === null ? "does not answer" : `${carrier.sessions} sessions`}`,
    );
    const message = text.length === 0 ? "none runs" : text.join("; ");
    return existsSync(lastConsoleOf("carrier", 0))
      ? ok("carrier", `${message}; last console: ${lastConsoleOf("carrier", 0)}`)
      : ok("carrier", message);
  } catch (error) {
    return problem("carrier", messageOf(error), remedyOf(error));
  }
}

function isAtLeast(version: string, oldest: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > oldest[0] || (major === oldest[0] && minor >= oldest[1]);
}

function ok(name: string, message: string): Check {
  return { name, severity: "ok", message };
}

function problem(name: string, message: string, remedy: string): Check {
  return { name, severity: "problem", message, remedy };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function remedyOf(error: unknown): string {
  return (error instanceof CoppiceError ? error.remedy : undefined) ?? "Read the message above.";
}
