/** Root file systems: a minimal Debian with packages and files, as an erofs image that all guests share. */

import { chmod, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

import type { ImageSpec } from "../api.js";
import { CoppiceError } from "../errors.js";
import { type ArchiveAccess, archiveAccess, archiveFailure, DEBIAN_KEYRING } from "./apt.js";
import { cached, prune } from "./content-cache.js";
import { DEFAULTS } from "./defaults.js";
import { makeErofs } from "./erofs.js";
import { addFiles } from "./image-files.js";
import { imageId, type ResolvedImageSpec, resolveImageSpec } from "./image-spec.js";
import { cacheDirectory } from "./paths.js";
import { type RunResult, requireTool, run, tail } from "./tools.js";

export interface BuildImageOptions {
  /** Default: see `cacheDirectory`. */
  readonly cacheDirectory?: string;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

export interface ImageFile {
  /** `sha256:…` of what it was built from. */
  readonly id: string;
  /** erofs file in the cache. */
  readonly path: string;
}

/** Any moment will do, as long as it is the same for all: nothing in an image tells when it was made. */
const SOURCE_DATE_EPOCH = "1700000000";

/** Name of an image in its cache entry. */
export const IMAGE_FILE = "image.erofs";

export function imagesDirectory(cache = cacheDirectory()): string {
  return join(cache, "images");
}

/**
 * Builds the image, or finds it in the cache. Throws `IMAGE_SPEC_INVALID`, `IMAGE_PACKAGE_NOT_FOUND`,
 * `IMAGE_BUILD_FAILED`, `ROOT_REQUIRED`, `TOOL_MISSING`, `NETWORK_UNAVAILABLE`, `ARCHIVE_UNVERIFIED`, `DISK_FULL`.
 */
export async function buildImageFile(spec: ImageSpec, options: BuildImageOptions = {}): Promise<ImageFile> {
  const resolved = resolveImageSpec(spec);
  const id = imageId(resolved);
  const parent = imagesDirectory(options.cacheDirectory);
  const entry = await cached({
    parent,
    key: id.replace("sha256:", ""),
    title: `image ${id.slice(0, 19)}…`,
    signal: options.signal,
    onProgress: options.onProgress,
    build: async (directory) => {
      await build(resolved, { id, directory, options });
      const files = [...resolved.files.keys()].join("\n");
      return { suite: resolved.suite, packages: resolved.packages.join(" "), files };
    },
  });
  await prune(parent, { keep: DEFAULTS.keepImages, maxAgeMs: DEFAULTS.keepEntriesMs });
  return { id, path: join(entry.directory, IMAGE_FILE) };
}

interface BuildContext {
  readonly id: string;
  readonly directory: string;
  readonly options: BuildImageOptions;
}

async function build(spec: ResolvedImageSpec, context: BuildContext): Promise<void> {
  for (const tool of ["mmdebstrap", "mkfs.erofs"] as const) {
    requireTool(tool);
  }
  requireRoot();
  const root = join(context.directory, "root");
  const temporary = join(context.directory, "tmp");
  await mkdir(temporary);
  // Packages are unpacked by unprivileged users of apt and dpkg too.
  await chmod(temporary, 0o755);
  const { signal, onProgress } = context.options;
  const what = spec.packages.length === 0 ? "nothing more" : spec.packages.join(", ");
  onProgress?.(`builds a Debian ${spec.suite} with ${what}`);
  await debstrap(spec, { root, temporary, signal });
  await addFiles(root, spec.files);
  onProgress?.("packs the image");
  const output = join(context.directory, IMAGE_FILE);
  await makeErofs({ root, output, compress: true, keepTimes: true, name: context.id, signal });
  await rm(root, { recursive: true, force: true });
  await rm(temporary, { recursive: true, force: true });
}

async function debstrap(
  spec: ResolvedImageSpec,
  context: { readonly root: string; readonly temporary: string; readonly signal: AbortSignal | undefined },
): Promise<void> {
  let failure: CoppiceError | undefined;
  for (const access of await archiveAccess(spec.suite, context.signal)) {
    await rm(context.root, { recursive: true, force: true });
    const result = await run("mmdebstrap", debstrapArguments(spec, access, context.root), {
      env: { SOURCE_DATE_EPOCH, TMPDIR: context.temporary },
      signal: context.signal,
      // Killed half-way it would leave its mounts, and then nobody could remove the rests.
      leavesNothing: true,
    });
    if (result.exitCode === 0) {
      return;
    }
    failure = buildFailure(spec, result, access.sources);
    if (failure.code !== "NETWORK_UNAVAILABLE") {
      break;
    }
  }
  throw failure;
}

function debstrapArguments(spec: ResolvedImageSpec, archive: ArchiveAccess, root: string): readonly string[] {
  const unwanted = ["doc", "man", "info", "locale", "lintian", "bug", "groff", "linda"];
  return [
    ...["--variant=minbase", "--architectures=amd64", "--format=directory"],
    `--keyring=${DEBIAN_KEYRING}`,
    ...(spec.packages.length === 0 ? [] : includePackages(spec.packages)),
    ...archive.transport.map((line) => `--aptopt=${line}`),
    `--aptopt=Acquire::Languages "none"`,
    `--aptopt=APT::Install-Recommends "false"`,
    ...unwanted.map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
    // Nobody needs half an image after a power failure.
    "--dpkgopt=force-unsafe-io",
    // Licences stay with what they cover.
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    // How this machine reaches its mirror is not for guests.
    `--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap`,
    `--customize-hook=rm -rf "$1"/var/cache/apt/* "$1"/var/cache/debconf/*-old "$1"/var/log/apt "$1"/var/log/dpkg.log "$1"/var/log/alternatives.log`,
    `--customize-hook=printf 'coppice\\n' > "$1"/etc/hostname; printf '127.0.0.1 localhost coppice\\n' > "$1"/etc/hosts; : > "$1"/etc/machine-id`,
    ...[spec.suite, root],
    ...archive.sources,
  ];
}

/** Names that the archive does not have are found at the start, not after half a minute of work. */
function includePackages(packages: readonly string[]): readonly string[] {
  // Package names have no characters that a shell knows, see `image-spec.ts`.
  const check = `apt-get update >&2 && apt-get install --simulate ${packages.join(" ")} >/dev/null`;
  return [`--include=${packages.join(",")}`, `--setup-hook=export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; ${check}`];
}

/** The name in apt's message. Exported for tests. */
export function missingPackage(output: string): string | undefined {
  return (
    /E: Unable to locate package (\S+)/.exec(output)?.[1] ??
    /E: Package '([^']+)' has no installation candidate/.exec(output)?.[1] ??
    /E: Couldn't find any package by (?:glob|regex) '([^']+)'/.exec(output)?.[1]
  );
}

function packageNotFound(name: string, suite: string): CoppiceError {
  return new CoppiceError(`Debian ${suite} has no package \`${name}\``, {
    code: "IMAGE_PACKAGE_NOT_FOUND",
    faultDomain: "user",
    remedy: `Correct image.debian.packages; https://packages.debian.org/${suite}/ has the names.`,
  });
}

function buildFailure(spec: ResolvedImageSpec, result: RunResult, sources: readonly string[]): CoppiceError {
  const missing = missingPackage(result.output);
  if (missing !== undefined) {
    return packageNotFound(missing, spec.suite);
  }
  if (/does not have a Release file/.test(result.output) && !/Could not (resolve|connect)/.test(result.output)) {
    return new CoppiceError(`\`image.debian.suite\`: the archive has no release "${spec.suite}"`, {
      code: "IMAGE_SPEC_INVALID",
      faultDomain: "user",
      remedy: "Name a release that the mirror has, such as bookworm.",
    });
  }
  const failure = archiveFailure(result, sources);
  if (failure.code !== "TOOL_FAILED") {
    return failure;
  }
  return new CoppiceError(`Image can't be built\n${tail(result.output, 20)}`, {
    code: "IMAGE_BUILD_FAILED",
    faultDomain: "host",
    remedy: "Read the message of apt or dpkg above; two of the packages may not go together.",
    cause: failure,
  });
}

function requireRoot(): void {
  if (process.getuid?.() !== 0) {
    throw new CoppiceError("Only root can build an image: it has files of several users", {
      code: "ROOT_REQUIRED",
      faultDomain: "user",
      remedy: "Run this once with sudo -E; later runs take the image from the cache.",
    });
  }
}
