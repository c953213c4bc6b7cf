import { mkdir, rm, writeFile } from "node:fs/promises";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { ensureHostArtifacts } from "./sandbox-pool/artifacts/index.js";
import { buildInitramfs } from "./sandbox-pool/artifacts/initramfs.js";
import { ensureKernel } from "./sandbox-pool/artifacts/kernel.js";
import { cacheDirectory } from "./sandbox-pool/artifacts/paths.js";
const [vmm, examples, ...args] = process.argv.slice(2);
const folder = `/tmp/w-smp-x/rig-${process.pid}`;
await mkdir(folder, { recursive: true });
const kernel = await ensureKernel({ cacheDirectory: cacheDirectory() });
const artifacts = await ensureHostArtifacts();
async function archive(name, programs, modules) {
  const workDirectory = join(folder, name + ".root"); await mkdir(workDirectory);
  const output = join(folder, name);
  await buildInitramfs({ workDirectory, output, programs, modules, directories: ["dev","proc","sys","run","tmp"] });
  return output;
}
const image = join(folder, "image");
await writeFile(image, Uint8Array.from({ length: 2097152 }, (_, i) => (i >> 9) ^ (i * 31)));
const guest = await archive("guest", { "/init": join(examples, "guest") }, kernel.modules("guest"));
const initrd = await archive("host", { "/init": join(examples, "rig"), "/coppice-vmm": vmm, "/vmlinux": artifacts.vmlinux, "/guest": guest, "/image": image }, kernel.modules("carrier"));
const append = "console=ttyS0 quiet tsc=reliable mitigations=off norandmaps nokaslr panic=-1 rdinit=/init -- " + args.join(" ");
const q = spawn("qemu-system-x86_64", ["-nodefaults","-no-user-config","-nographic","-no-reboot","-accel","tcg","-cpu","max,svm=on,la57=off","-smp","1","-m","3072","-kernel",artifacts.kernelBzImage,"-initrd",initrd,"-append",append,"-serial","stdio"], { stdio: ["ignore","inherit","inherit"] });
await new Promise((r) => q.once("close", r));
await rm(folder, { recursive: true });
