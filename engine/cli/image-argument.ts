/** What a person may give as an image, made into what a host can boot. */

import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";

import { z } from "zod";

import { CoppiceError, findImage, type ImageBuilder, type ImageSpec } from "../../sandbox-pool/index.js";
import { reasonOf } from "../errors.js";

export interface ImageChoice {
  readonly spec: ImageSpec;
  /** Absent: built from `spec`. */
  readonly imageBuilder?: ImageBuilder;
}

/** For `--help`. */
export const IMAGE_HELP = `
An IMAGE is one of:
  debian                    a minimal Debian
  debian:python3,sqlite3    with packages
  sha256:ab12cd34           one of \`coppice image ls\`
  ./image.json              { "debian": { "packages": ["python3"] }, "files": { "/srv/app.sh": { "from": "./app.sh" } } }`;

/** Sandboxes have ids of this form. */
export function isSandboxId(word: string): boolean {
  return /^sb-[0-9a-f]+-\d+$/.test(word);
}

/** Throws `IMAGE_SPEC_INVALID`, `IMAGE_NOT_FOUND`. */
export async function chooseImage(word: string): Promise<ImageChoice> {
  if (word === "debian" || word.startsWith("debian:")) return { spec: debianSpec(word.slice("debian:".length)) };
  if (word.startsWith("sha256:")) {
    const image = await findImage(word);
    // What it was built from is not known any more, and not needed.
    return { spec: { debian: {} }, imageBuilder: () => Promise.resolve(image) };
  }
  if (word.endsWith(".json") || word.includes("/")) return { spec: await readSpecFile(word) };
  throw invalid(`"${word}" is no image${looksLikeDebian(word) ? "; did you mean debian?" : ""}`);
}

/** Packages in a list, separated by commas. */
export function debianSpec(packages: string): ImageSpec {
  const names = packages.split(",").map((name) => name.trim());
  return { debian: { packages: names.filter(Boolean) } };
}

const contentsSchema = z.union([z.string(), z.strictObject({ from: z.string().min(1) })]);
const specFileSchema = z.strictObject({
  debian: z.strictObject({ packages: z.array(z.string()).optional(), suite: z.string().optional() }),
  files: z.record(z.string(), contentsSchema).optional(),
});

/** Files are given as text, or as `{ "from": PATH }`, relative to the description. */
export async function readSpecFile(path: string): Promise<ImageSpec> {
  let json: unknown;
  try {
    json = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw invalid(`${path} can not be read: ${reasonOf(error)}`, error);
  }
  const parsed = specFileSchema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw invalid(`${path}: \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "is not valid"}`);
  }
  const { packages, suite } = parsed.data.debian;
  const files: Record<string, string | Uint8Array> = {};
  for (const [guestPath, contents] of Object.entries(parsed.data.files ?? {})) {
    files[guestPath] =
      typeof contents === "string" ? contents : await readHostFile(resolve(dirname(path), contents.from));
  }
  return {
    debian: { ...(packages === undefined ? {} : { packages }), ...(suite === undefined ? {} : { suite }) },
    files,
  };
}

export async function readHostFile(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    throw invalid(`${path} can not be read: ${reasonOf(error)}`, error);
  }
}

/** One slip of the finger. */
function looksLikeDebian(word: string): boolean {
  const [name = ""] = word.split(":");
  const letters = (text: string): string => [...text].sort().join("");
  return letters(name) === letters("debian") || (name.length > 3 && "debian".startsWith(name.slice(0, 3)));
}

function invalid(message: string, cause?: unknown): CoppiceError {
  return new CoppiceError(message, {
    code: "IMAGE_SPEC_INVALID",
    faultDomain: "user",
    remedy: "Give debian, debian:PACKAGE,PACKAGE, an id of `coppice image ls`, or a JSON file with a description.",
    cause,
  });
}
