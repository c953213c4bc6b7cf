/** What a user asks for, checked, and the name that it gets. */

import { createHash } from "node:crypto";
import { posix } from "node:path";

import { z } from "zod";

import type { ImageSpec } from "../api.js";
import { CoppiceError } from "../errors.js";
import { canonicalJson } from "./content-cache.js";
import { DEFAULTS, FORMAT } from "./defaults.js";

export interface ResolvedImageSpec {
  readonly suite: string;
  /** Sorted, each once. */
  readonly packages: readonly string[];
  /** Absolute normal path to contents, sorted by path. */
  readonly files: ReadonlyMap<string, Uint8Array>;
}

/** Mounted over when the guest boots: what an image has there is never seen. */
const HIDDEN = ["/dev", "/proc", "/run", "/sys", "/tmp"];

const imageSpecSchema = z.strictObject({
  debian: z.strictObject({
    packages: z.array(z.string().regex(/^[a-z0-9][a-z0-9+.-]+$/, "is not the name of a Debian package")).optional(),
    suite: z
      .string()
      .regex(/^[a-z][a-z0-9-]*$/, "is not the name of a Debian release")
      .optional(),
  }),
  files: z.record(z.string(), z.union([z.string(), z.instanceof(Uint8Array)])).optional(),
});

/** Throws `IMAGE_SPEC_INVALID` naming the field. */
export function resolveImageSpec(spec: ImageSpec): ResolvedImageSpec {
  const parsed = imageSpecSchema.safeParse(spec);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const value = valueAt(spec, issue?.path ?? []);
    const path = issue?.path ?? [];
    throw invalid(`image.${path.join(".")}`, `${value}${issue?.message ?? "is not valid"}`, remedyAt(path));
  }
  const files = new Map<string, Uint8Array>();
  for (const [path, contents] of Object.entries(parsed.data.files ?? {}).sort(([a], [b]) => (a < b ? -1 : 1))) {
    checkPath(path);
    files.set(path, typeof contents === "string" ? Buffer.from(contents) : contents);
  }
  for (const path of files.keys()) {
    for (let parent = posix.dirname(path); parent !== "/"; parent = posix.dirname(parent)) {
      if (files.has(parent)) {
        const what = `can't be a file: it is the directory of "${path}"`;
        throw invalid(`image.files["${parent}"]`, what, "Leave one of the two out, or put it elsewhere.");
      }
    }
  }
  return {
    suite: parsed.data.debian.suite ?? DEFAULTS.suite,
    packages: [...new Set(parsed.data.debian.packages ?? [])].sort(),
    files,
  };
}

/** `sha256:…` of what the image is built from. */
export function imageId(spec: ResolvedImageSpec): string {
  const files = [...spec.files].map(([path, contents]) => [path, createHash("sha256").update(contents).digest("hex")]);
  const text = canonicalJson({ format: FORMAT.image, suite: spec.suite, packages: spec.packages, files });
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

function checkPath(path: string): void {
  const field = `image.files["${path}"]`;
  if (!path.startsWith("/") || path.endsWith("/") || path.includes("\0") || posix.normalize(path) !== path) {
    throw invalid(field, "is not an absolute path of a file", "Write it as /srv/hello.txt is written: from the root.");
  }
  if (Buffer.byteLength(path) > 4095 || path.split("/").some((part) => Buffer.byteLength(part) > 255)) {
    throw invalid(field, "is longer than Linux allows", "Use shorter names, or fewer directories.");
  }
  const hidden = HIDDEN.find((directory) => path === directory || path.startsWith(`${directory}/`));
  if (hidden !== undefined) {
    const remedy = "Put it elsewhere, such as below /srv, or write it in `warmUp`.";
    throw invalid(field, `would not be seen: ${hidden} is empty when a guest boots`, remedy);
  }
}

function valueAt(spec: unknown, path: readonly PropertyKey[]): string {
  let value = spec;
  for (const name of path) {
    value = (value as Record<PropertyKey, unknown> | undefined)?.[name];
  }
  return typeof value === "string" ? `"${value}" ` : "";
}

/** By the field that is wrong. */
function remedyAt([first, second]: readonly PropertyKey[]): string {
  if (second === "packages")
    return "Name packages as `apt` does: in lower case and without a version, such as python3.";
  if (second === "suite") return "Name a release as Debian's archive does, such as bookworm or trixie.";
  if (first === "files") return "Give each file's contents as a string or a Uint8Array.";
  return "An image is { debian: { packages, suite }, files }, of which only `debian` must be there.";
}

function invalid(field: string, what: string, remedy: string): CoppiceError {
  return new CoppiceError(`\`${field}\`: ${what}`, { code: "IMAGE_SPEC_INVALID", faultDomain: "user", remedy });
}
