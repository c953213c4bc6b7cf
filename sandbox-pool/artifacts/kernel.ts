/** Debian's stock cloud kernel, fetched and unpacked into the cache. It is never installed: the machine's boot loader is not ours. */

import { createHash } from "node:crypto";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gunzipSync } from "node:zlib";

import { CoppiceError } from "../errors.js";
import { type Apt, archiveFailure, withApt } from "./apt.js";
import { extractVmlinux } from "./bzimage.js";
import { type CacheEntry, cached, contentKey, listEntries, openEntry } from "./content-cache.js";
import { DEFAULTS, FORMAT } from "./defaults.js";
import { type KernelModule, resolveModules } from "./kernel-modules.js";
import { withFileLock } from "./lock.js";
import { runChecked } from "./tools.js";

export interface Kernel {
  /** Names what is in it: two kernels with equal keys are equal. */
  readonly key: string;
  /** Such as `6.1.0-57-cloud-amd64`. */
  readonly release: string;
  readonly bzImage: string;
  readonly vmlinux: string;
  /** Files of the modules for a purpose, in load order. */
  modules(purpose: "guest" | "carrier"): readonly { readonly file: string; readonly parameters: string }[];
}

export interface KernelOptions {
  readonly cacheDirectory: string;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

/** Entries end with it: a kernel that was unpacked for other needs is not used. */
const RECIPE = contentKey([FORMAT.kernel, DEFAULTS.guestModules, DEFAULTS.carrierModules]).slice(0, 8);

const ORDER_FILES = Object.freeze({ guest: "order.guest", carrier: "order.carrier" });

/** The kernel of the cache, whatever its age, or Debian's newest where there is none: then the network is needed. */
export async function ensureKernel(options: KernelOptions): Promise<Kernel> {
  const parent = join(options.cacheDirectory, "kernels");
  const found = await findCached(parent);
  if (found !== undefined) {
    return found;
  }
  const lockOptions = {
    signal: options.signal,
    onWait: () => options.onProgress?.("waits for another process that fetches the kernel"),
  };
  return await withFileLock(join(parent, ".lock-fetch"), lockOptions, async () => {
    return (await findCached(parent)) ?? (await fetchKernel(parent, options));
  });
}

async function findCached(parent: string): Promise<Kernel | undefined> {
  for (const key of await listEntries(parent)) {
    const entry = key.endsWith(`_${RECIPE}`) ? await openEntry(parent, key) : undefined;
    if (entry !== undefined) {
      return await openKernel(entry);
    }
  }
  return undefined;
}

async function fetchKernel(parent: string, options: KernelOptions): Promise<Kernel> {
  const apt = { ...options, directory: join(options.cacheDirectory, "apt", DEFAULTS.suite), suite: DEFAULTS.suite };
  return await withApt(apt, async (archive) => {
    const { name, version } = await newestKernel(archive);
    const entry = await cached({
      parent,
      key: `${name.replace("linux-image-", "")}_${version.replaceAll(/[^\w.+~-]/g, "-")}_${RECIPE}`,
      title: `kernel ${version}`,
      signal: options.signal,
      onProgress: options.onProgress,
      build: async (directory) => {
        options.onProgress?.(`fetches Debian's kernel: ${name} ${version}`);
        const download = await archive.run("apt-get", ["download", `${name}=${version}`], directory);
        if (download.exitCode !== 0) {
          throw archiveFailure(download, archive.sources);
        }
        return await unpackKernel(directory, options);
      },
    });
    return await openKernel(entry);
  });
}

/** The versioned package that the kernel's metapackage depends on. */
async function newestKernel(archive: Apt): Promise<{ readonly name: string; readonly version: string }> {
  const meta = await archive.run("apt-cache", ["show", "--no-all-versions", DEFAULTS.kernelPackage]);
  const name = /^Depends:.*?\b(linux-image-\d[\w.+-]*)/m.exec(meta.stdout)?.[1];
  const details = name === undefined ? undefined : await archive.run("apt-cache", ["show", "--no-all-versions", name]);
  const version = details === undefined ? undefined : /^Version: (\S+)$/m.exec(details.stdout)?.[1];
  if (name === undefined || version === undefined) {
    throw new CoppiceError(`Debian's index names no kernel for \`${DEFAULTS.kernelPackage}\``, {
      code: "KERNEL_NOT_FOUND",
      faultDomain: "host",
      remedy: "The mirror may be incomplete: name another one with COPPICE_DEBIAN_MIRROR=http://…/debian.",
    });
  }
  return { name, version };
}

/** Leaves in the directory what is needed: both forms of the kernel, the modules, and their orders. */
async function unpackKernel(directory: string, options: KernelOptions): Promise<Record<string, string>> {
  const names = await readdir(directory);
  const packageFile = names.find((name) => name.endsWith(".deb"));
  if (packageFile === undefined) {
    throw damagedPackage("apt has downloaded nothing");
  }
  const deb = join(directory, packageFile);
  const tree = join(directory, "tree");
  options.onProgress?.("unpacks the kernel");
  await runChecked("dpkg-deb", ["--extract", deb, tree], { signal: options.signal });
  await runChecked("dpkg-deb", ["--control", deb, join(tree, "DEBIAN")], { signal: options.signal });
  const checksums = await readChecksums(join(tree, "DEBIAN", "md5sums"));

  const image = (await readdir(join(tree, "boot"))).find((name) => name.startsWith("vmlinuz-"));
  if (image === undefined) {
    throw damagedPackage("it has no vmlinuz");
  }
  const release = image.slice("vmlinuz-".length);
  const bzImage = await readVerified(tree, join("boot", image), checksums);
  await writeFile(join(directory, "vmlinuz"), bzImage);
  await writeFile(join(directory, "vmlinux"), await extractVmlinux(bzImage, options.signal));

  const modulesBelow = await modulesDirectory(tree, release);
  const purposes = { guest: DEFAULTS.guestModules, carrier: DEFAULTS.carrierModules };
  for (const [purpose, wanted] of Object.entries(purposes) as ["guest" | "carrier", readonly string[]][]) {
    const modules = await resolveModules(join(tree, modulesBelow), wanted);
    for (const module of modules) {
      const data = await readVerified(tree, join(modulesBelow, module.path), checksums);
      await writeFile(join(directory, `${module.name}.ko`), decompressModule(module, data));
    }
    await writeFile(join(directory, ORDER_FILES[purpose]), modules.map((module) => `${module.name}\n`).join(""));
  }
  await rm(tree, { recursive: true, force: true });
  await rm(deb, { force: true });
  return { release };
}

async function modulesDirectory(tree: string, release: string): Promise<string> {
  for (const below of [join("lib", "modules", release), join("usr", "lib", "modules", release)]) {
    const names: readonly string[] = await readdir(join(tree, below)).catch(() => []);
    if (names.includes("kernel")) {
      return below;
    }
  }
  throw damagedPackage("it has no modules");
}

/** The package's own list of digests; apt has verified the package as a whole, this verifies the unpacking. */
async function readChecksums(path: string): Promise<ReadonlyMap<string, string>> {
  const lines = (await readFile(path, "utf8")).split("\n");
  const pairs = lines.map((line) => /^([0-9a-f]{32}) {2}(.+)$/.exec(line));
  return new Map(pairs.filter((pair) => pair !== null).map((pair) => [pair[2] as string, pair[1] as string]));
}

async function readVerified(tree: string, path: string, checksums: ReadonlyMap<string, string>): Promise<Buffer> {
  const data = await readFile(join(tree, path));
  if (createHash("md5").update(data).digest("hex") !== checksums.get(path)) {
    throw damagedPackage(`${path} is not what its list of digests says`);
  }
  return data;
}

/** Debian 12 does not compress modules; what a later one does must not pass unseen. */
function decompressModule(module: KernelModule, data: Buffer): Buffer {
  if (module.path.endsWith(".gz")) {
    return gunzipSync(data);
  }
  if (!module.path.endsWith(".ko")) {
    throw damagedPackage(`${basename(module.path)} is compressed in a way that is not known here`);
  }
  return data;
}

async function openKernel(entry: CacheEntry): Promise<Kernel> {
  const orders = {
    guest: await readOrder(entry.directory, "guest"),
    carrier: await readOrder(entry.directory, "carrier"),
  };
  return {
    key: basename(entry.directory),
    release: entry.facts["release"] ?? "",
    bzImage: join(entry.directory, "vmlinuz"),
    vmlinux: join(entry.directory, "vmlinux"),
    modules: (purpose) => orders[purpose],
  };
}

async function readOrder(directory: string, purpose: "guest" | "carrier") {
  const names = (await readFile(join(directory, ORDER_FILES[purpose]), "utf8")).split("\n").filter(Boolean);
  return names.map((name) => ({
    file: join(directory, `${name}.ko`),
    parameters: DEFAULTS.moduleParameters[name] ?? "",
  }));
}

function damagedPackage(what: string): CoppiceError {
  return new CoppiceError(`Kernel package can't be used: ${what}`, {
    code: "KERNEL_DAMAGED",
    faultDomain: "host",
    remedy: "Try again; if it stays, name another mirror with COPPICE_DEBIAN_MIRROR=http://…/debian.",
  });
}
