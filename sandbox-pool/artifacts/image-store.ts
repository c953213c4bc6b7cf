/** The images that were built on this machine and are in the cache. */

import { rm, stat } from "node:fs/promises";
import { join } from "node:path";

import { CoppiceError } from "../errors.js";
import { listEntries, openEntry } from "./content-cache.js";
import { IMAGE_FILE, type ImageFile, imagesDirectory } from "./image.js";

export interface StoredImage extends ImageFile {
  readonly suite: string;
  readonly packages: readonly string[];
  /** Guest paths of files that were added; null where an earlier version, which did not note them, built the image. */
  readonly files: readonly string[] | null;
  readonly sizeBytes: number;
  readonly lastUsedAt: Date;
}

/** `sha256:` and so many digits name an image well enough. */
const MIN_DIGITS = 6;

/** Last used first. Damaged ones are left out. */
export async function listImages(): Promise<readonly StoredImage[]> {
  const images: StoredImage[] = [];
  for (const key of await listEntries(imagesDirectory())) {
    const image = await openImage(key);
    if (image !== undefined) images.push(image);
  }
  return images;
}

/** The image with this id, or the only one whose id begins so. Throws `IMAGE_NOT_FOUND`. */
export async function findImage(id: string): Promise<ImageFile> {
  const key = await findKey(id);
  const image = await openImage(key);
  if (image === undefined) throw notFound(id, "is damaged");
  return { id: image.id, path: image.path };
}

/** A host that uses it keeps the contents until it ends. Throws `IMAGE_NOT_FOUND`. */
export async function removeImage(id: string): Promise<string> {
  const key = await findKey(id);
  await rm(join(imagesDirectory(), key), { recursive: true, force: true });
  return `sha256:${key}`;
}

async function findKey(id: string): Promise<string> {
  const digits = id.replace(/^sha256:/, "");
  if (!/^[0-9a-f]+$/.test(digits) || digits.length < MIN_DIGITS) {
    throw notFound(id, `is no image id: those are sha256: and at least ${MIN_DIGITS} digits`);
  }
  const found = (await listEntries(imagesDirectory())).filter((key) => key.startsWith(digits));
  const [only] = found;
  if (only === undefined) throw notFound(id, "is not in the cache");
  if (found.length > 1) throw notFound(id, `stands for ${found.length} images: give more digits`);
  return only;
}

async function openImage(key: string): Promise<StoredImage | undefined> {
  const used = await stat(join(imagesDirectory(), key, "manifest.json")).catch(() => undefined);
  const entry = await openEntry(imagesDirectory(), key);
  if (entry === undefined || used === undefined) return undefined;
  const path = join(entry.directory, IMAGE_FILE);
  const { suite = "", packages = "", files } = entry.facts;
  return {
    id: `sha256:${key}`,
    path,
    suite,
    packages: packages.split(" ").filter(Boolean),
    files: files === undefined ? null : files.split("\n").filter(Boolean),
    sizeBytes: (await stat(path)).size,
    lastUsedAt: used.mtime,
  };
}

function notFound(id: string, what: string): CoppiceError {
  return new CoppiceError(`Image "${id}" ${what}`, {
    code: "IMAGE_NOT_FOUND",
    faultDomain: "user",
    remedy: "`coppice image ls` has the images of this machine; `coppice image build` makes one.",
  });
}
