/** The VMM by itself, on KVM as an emulated CPU has it: what a VMM that forks can get wrong, see the rig's checks. */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, expect, it } from "vitest";

import { ensureHostArtifacts } from "../sandbox-pool/artifacts/index.js";
import { buildInitramfs } from "../sandbox-pool/artifacts/initramfs.js";
import { ensureKernel, type Kernel } from "../sandbox-pool/artifacts/kernel.js";
import { cacheDirectory } from "../sandbox-pool/artifacts/paths.js";

const EXAMPLES = fileURLToPath(new URL("../native/target/x86_64-unknown-linux-gnu/release/examples/", import.meta.url));

const IMAGE_BYTES = 2 * 1024 * 1024;
const MEMORY_MIB = 3072;
/** Against hangs only. */
const LIMIT_MS = 540_000;

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-vmm-"));
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

function example(name: string): string {
  const path = join(EXAMPLES, name);
  if (!existsSync(path)) throw new Error(`${path} is missing: \`cargo test --release\` in native/ builds it`);
  return path;
}

async function archive(
  name: string,
  programs: Readonly<Record<string, string>>,
  modules: ReturnType<Kernel["modules"]>,
): Promise<string> {
  const workDirectory = join(folder, `${name}.root`);
  await mkdir(workDirectory);
  const output = join(folder, name);
  const directories = ["dev", "proc", "sys", "run", "tmp"];
  await buildInitramfs({ workDirectory, output, programs, modules, directories });
  await rm(workDirectory, { recursive: true });
  return output;
}

/** What the machine's console said until it powered itself off. */
async function consoleOf(kernel: string, initrd: string): Promise<string> {
  const append = "console=ttyS0 quiet tsc=reliable mitigations=off norandmaps nokaslr panic=-1 rdinit=/init";
  const qemu = spawn(
    "qemu-system-x86_64",
    [
      ...["-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-accel", "tcg"],
      ...["-cpu", "max,svm=on,la57=off", "-smp", "1", "-m", `${MEMORY_MIB}`],
      ...["-kernel", kernel, "-initrd", initrd, "-append", append, "-serial", "stdio"],
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const timer = setTimeout(() => qemu.kill("SIGKILL"), LIMIT_MS);
  let text = "";
  qemu.stdout.setEncoding("utf8").on("data", (data: string) => {
    text += data;
  });
  await new Promise((resolve) => qemu.once("close", resolve));
  clearTimeout(timer);
  return text.replaceAll("\r", "");
}

it("passes every check of its rig", { timeout: LIMIT_MS + 60_000 }, async () => {
  const [artifacts, kernel] = await Promise.all([
    ensureHostArtifacts(),
    ensureKernel({ cacheDirectory: cacheDirectory() }),
  ]);
  const image = join(folder, "image");
  // Every sector is another, so that a wrong one is found.
  await writeFile(
    image,
    Uint8Array.from({ length: IMAGE_BYTES }, (_, index) => (index >> 9) ^ (index * 31)),
  );
  const guest = await archive("guest", { "/init": example("guest") }, kernel.modules("guest"));
  const programs = {
    "/init": example("rig"),
    "/coppice-vmm": artifacts.vmm,
    "/vmlinux": artifacts.vmlinux,
    "/guest": guest,
    "/image": image,
  };
  const text = await consoleOf(artifacts.kernelBzImage, await archive("host", programs, kernel.modules("carrier")));
  const lines = text.split("\n");
  expect(lines.filter((line) => line.startsWith("FAIL"))).toEqual([]);
  expect(lines).toContain("0 failed");
  expect(lines.filter((line) => line.startsWith("PASS")).length).toBeGreaterThanOrEqual(20);
});
