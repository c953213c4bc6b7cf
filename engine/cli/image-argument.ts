/** What a person may give as an image, made into what a host can boot. */

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";

import { z } from "zod";

import { CoppiceError, DEBIAN_SUITE, findImage, type ImageBuilder, type ImageSpec } from "../../sandbox-pool/index.js";
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
  if (word.endsWith(".json") || (word.includes("/") && (existsSync(word) || !isRegistryName(word)))) {
    return { spec: await readSpecFile(word) };
  }
  throw noImage(word);
}

/** Packages in a list, separated by commas. Throws `IMAGE_SPEC_INVALID` where one is the name of a release. */
export function debianSpec(packages: string): ImageSpec {
  const names = packages.split(",").map((name) => name.trim());
  const release = names.find(isRelease);
  if (release !== undefined) throw releaseGiven(release);
  return { debian: { packages: names.filter(Boolean) } };
}

const contentsSchema = z.union([z.string(), z.strictObject({ from: z.string().min(1) })], {
  error: 'must be text or { "from": PATH }',
});
const specFileSchema = z.strictObject({
  debian: z.strictObject({ packages: z.array(z.string()).optional(), suite: z.string().optional() }),
  files: z.record(z.string(), contentsSchema).optional(),
});

/** Files are given as text, or as `{ "from": PATH }`, relative to the description. */
export async function readSpecFile(path: string): Promise<ImageSpec> {
  const json = parseJson(path, String(await readHostFile(path)));
  const parsed = specFileSchema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw invalid(
      `${path}: \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "is not valid"}`,
      'An image file has { "debian": { "packages": [NAME], "suite": RELEASE }, "files": { GUEST_PATH: TEXT or { "from": PATH } } }.',
    );
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

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(`${path} is not JSON: ${reasonOf(error)}`, "Correct it where the message says.", error);
  }
}

export async function readHostFile(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    const remedy = "Check the path: in an image file it is relative to that file, elsewhere to where you are.";
    throw invalid(`${path} can not be read: ${reasonOf(error)}`, remedy, error);
  }
}

/** Names and numbers by which people know releases of Debian, with the endings that images of containers have. */
function isRelease(name: string): boolean {
  return /^(?:latest|stable|oldstable|testing|unstable|sid|buster|bullseye|bookworm|trixie|forky|\d+(?:\.\d+)?)(?:-slim|-backports)?$/.test(
    name,
  );
}

function releaseGiven(release: string): CoppiceError {
  const suite = release.replace(/-slim$/, "");
  const other = suite === DEBIAN_SUITE ? "" : `; for another release write a file: { "debian": { "suite": "trixie" } }`;
  return invalid(
    `"${release}" is a release of Debian, and after "debian:" come packages`,
    `Write debian, which is ${DEBIAN_SUITE}, or debian:PACKAGE,PACKAGE${other}.`,
  );
}

/** As registries of container images name theirs: none can be had from there. */
function isRegistryName(word: string): boolean {
  return /^[a-z0-9][a-z0-9.-]*(?::\d+)?(?:\/[a-z0-9][a-z0-9._-]*)+(?:[:@][\w.:-]+)?$/.test(word);
}

/** What Debian calls the software in well-known container images. */
const PACKAGES: Readonly<Record<string, string>> = {
  gcc: "gcc",
  golang: "golang-go",
  mariadb: "mariadb-server",
  mysql: "mariadb-server",
  nginx: "nginx-light",
  node: "nodejs",
  openjdk: "default-jdk-headless",
  perl: "perl",
  php: "php-cli",
  postgres: "postgresql",
  python: "python3",
  python3: "python3",
  redis: "redis-server",
  ruby: "ruby",
  rust: "rustc",
  sqlite: "sqlite3",
  sqlite3: "sqlite3",
};

const FORMS = "An image is debian, debian:PACKAGE,PACKAGE, an id of `coppice image ls`, or a JSON file";

function noImage(word: string): CoppiceError {
  if (isSandboxId(word)) {
    return invalid(`${word} is a sandbox, and no image`, `\`coppice exec ${word} -- COMMAND\` runs something in it.`);
  }
  if (looksLikeDebian(word)) return invalid(`"${word}" is no image; did you mean debian?`, `${FORMS}.`);
  const name = word.replace(/[:@].*$/, "").replace(/^.*\//, "");
  const packageName = Object.hasOwn(PACKAGES, name) ? PACKAGES[name] : undefined;
  if (packageName !== undefined) {
    return invalid(`"${word}" is no image`, `Write debian:${packageName}: images are Debian with packages of it.`);
  }
  const isTagged = isRegistryName(word) || word.includes(":");
  return invalid(
    `"${word}" is no image`,
    `${FORMS}.${isTagged ? " Images of container registries and other distributions can't be had." : ""}`,
  );
}

/** One slip of the finger. */
function looksLikeDebian(word: string): boolean {
  const name = word.replace(/:.*$/s, "").toLowerCase();
  const letters = (text: string): string => [...text].sort().join("");
  return letters(name) === letters("debian") || (name.length > 3 && "debian".startsWith(name.slice(0, 3)));
}

function invalid(message: string, remedy: string, cause?: unknown): CoppiceError {
  return new CoppiceError(message, { code: "IMAGE_SPEC_INVALID", faultDomain: "user", remedy, cause });
}
