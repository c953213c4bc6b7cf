/** Everything that a host needs to run guests, made once and kept by content. */

import { copyFile, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { cached, contentKey, hashFile, prune } from "./content-cache.js";
import { DEFAULTS, FORMAT } from "./defaults.js";
import { makeErofs } from "./erofs.js";
import { buildInitramfs } from "./initramfs.js";
import { ensureKernel, type Kernel } from "./kernel.js";
import { findNativePrograms, type NativePrograms } from "./native.js";
import { cacheDirectory } from "./paths.js";

export interface HostArtifactsOptions {
  /** Default: see `cacheDirectory`. */
  readonly cacheDirectory?: string;
  /** Where the native programs are. Default: COPPICE_NATIVE_DIR, or cargo's output below the package. */
  readonly nativeDirectory?: string;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

export interface HostArtifacts {
  /** Names all of it: hosts with equal keys are interchangeable. */
  readonly key: string;
  readonly kernelRelease: string;
  /** For QEMU. */
  readonly kernelBzImage: string;
  /** For coppice-vmm. */
  readonly vmlinux: string;
  readonly guestInitrd: string;
  readonly carrierInitrd: string;
  /** erofs image with `/vmlinux` and `/initrd` for the guests of a carrier. */
  readonly guestDisk: string;
  readonly vmm: string;
  readonly coppiced: string;
  readonly agent: string;
  readonly keeper: string;
  readonly probe: string;
}

export async function ensureHostArtifacts(options: HostArtifactsOptions = {}): Promise<HostArtifacts> {
  const cache = options.cacheDirectory ?? cacheDirectory();
  const native = await findNativePrograms(options.nativeDirectory);
  const kernel = await ensureKernel({ ...options, cacheDirectory: cache });
  const context: BuildContext = { ...options, parent: join(cache, "host"), kernel, native };
  const guestInitrd = await guestInitramfs(context);
  const carrierInitrd = await carrierInitramfs(context);
  const guestDisk = await guestDiskImage(context, guestInitrd.path, guestInitrd.key);
  const age = { keep: DEFAULTS.keepEntries * 3, maxAgeMs: DEFAULTS.keepEntriesMs };
  await prune(context.parent, age);
  await prune(join(cache, "kernels"), { ...age, keep: DEFAULTS.keepEntries });
  return {
    key: contentKey([kernel.key, carrierInitrd.key, guestDisk.key]).slice(0, 16),
    kernelRelease: kernel.release,
    kernelBzImage: kernel.bzImage,
    vmlinux: kernel.vmlinux,
    guestInitrd: guestInitrd.path,
    carrierInitrd: carrierInitrd.path,
    guestDisk: guestDisk.path,
    vmm: native.vmm,
    coppiced: native.coppiced,
    agent: native.agent,
    keeper: native.keeper,
    probe: native.probe,
  };
}

interface BuildContext extends HostArtifactsOptions {
  readonly parent: string;
  readonly kernel: Kernel;
  readonly native: NativePrograms;
}

interface Artifact {
  readonly key: string;
  readonly path: string;
}

async function guestInitramfs(context: BuildContext): Promise<Artifact> {
  return await initramfs(context, "guest", { "/init": context.native.agent }, ["dev", "proc", "sys", "run", "tmp"]);
}

async function carrierInitramfs(context: BuildContext): Promise<Artifact> {
  const programs = { "/coppiced": context.native.coppiced, "/coppice-vmm": context.native.vmm };
  return await initramfs(context, "carrier", programs, ["dev", "proc", "sys", "run", "tmp", "images"]);
}

async function initramfs(
  context: BuildContext,
  purpose: "guest" | "carrier",
  programs: Readonly<Record<string, string>>,
  directories: readonly string[],
): Promise<Artifact> {
  const modules = context.kernel.modules(purpose);
  const digests: Record<string, string> = {};
  for (const [path, source] of Object.entries(programs)) {
    digests[path] = await hashFile(source);
  }
  const parameters = modules.map((module) => module.parameters);
  const inputs = [FORMAT.initramfs, purpose, context.kernel.key, digests, directories, parameters];
  const key = `${purpose}-initramfs-${contentKey(inputs)}`;
  const entry = await cached({
    ...context,
    key,
    title: `the ${purpose}'s initramfs`,
    build: async (directory) => {
      const workDirectory = join(directory, "root");
      await mkdir(workDirectory);
      const output = join(directory, "initrd");
      await buildInitramfs({ workDirectory, output, programs, modules, directories, signal: context.signal });
      await rm(workDirectory, { recursive: true });
      return undefined;
    },
  });
  return { key, path: join(entry.directory, "initrd") };
}

async function guestDiskImage(context: BuildContext, initrd: string, initrdKey: string): Promise<Artifact> {
  const key = `guest-disk-${contentKey([FORMAT.guestDisk, context.kernel.key, initrdKey])}`;
  const entry = await cached({
    ...context,
    key,
    title: "the guests' boot disk",
    build: async (directory) => {
      const root = join(directory, "root");
      await mkdir(root);
      await copyFile(context.kernel.vmlinux, join(root, "vmlinux"));
      await copyFile(initrd, join(root, "initrd"));
      // Not compressed: an emulated CPU reads faster than it decompresses.
      await makeErofs({ root, output: join(directory, "disk"), compress: false, name: key, signal: context.signal });
      await rm(root, { recursive: true });
      return undefined;
    },
  });
  return { key, path: join(entry.directory, "disk") };
}
