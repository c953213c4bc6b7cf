/** Environments are modules, so that every thread can import them. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { z } from "zod";

import type { Environment } from "../environment.js";
import { environmentModuleInvalid, reasonOf } from "../errors.js";
import type { Json } from "../json.js";

const required = z.custom<(value: never) => unknown>((value) => typeof value === "function", "is not a function");

const schema = z.looseObject({
  name: z.string().regex(/^[a-z0-9]+(-[a-z0-9]+)*$/, "is not of lower-case letters, digits and single dashes"),
  image: z.looseObject({ debian: z.looseObject({}) }),
  memoryMiB: z.number().positive().optional(),
  vcpus: z.int().positive().optional(),
  stepTimeoutMs: z.number().positive().optional(),
  warmUp: required.optional(),
  reset: required,
  step: required,
  actions: required,
  cell: required,
  score: required.optional(),
  landmarks: required.optional(),
});

export async function loadEnvironment(url: URL): Promise<Environment<Json>> {
  let module: { readonly default?: unknown };
  try {
    module = (await import(url.href)) as typeof module;
  } catch (error) {
    const missing = error instanceof Error && (error as { code?: unknown }).code === "ERR_MODULE_NOT_FOUND";
    throw environmentModuleInvalid(
      url.href,
      `can not be imported: ${reasonOf(error)}`,
      missing ? "Check the path, and that what it imports is installed." : "Fix the error in the module.",
      error,
    );
  }
  if (module.default === undefined) {
    throw environmentModuleInvalid(
      url.href,
      "has no default export",
      "Write `export default defineEnvironment({ … })`.",
    );
  }
  const parsed = schema.safeParse(module.default);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const field = issue?.path.join(".") || "default export";
    throw environmentModuleInvalid(
      url.href,
      `is no environment: ${field}: ${issue?.message ?? "not valid"}`,
      "Compare it with the Environment interface.",
    );
  }
  return module.default as Environment<Json>;
}

const IMPORTS = /(?:\bfrom\s*|\bimport\s*\(?\s*)(["'])(\.{1,2}\/[^"']+)\1/g;

/** A bound on how far imports are followed; beyond it something is wrong. */
const MAX_MODULES = 10_000;

/** Digest of the module and of every file that it imports by a relative path, in whatever depth. */
export async function moduleDigest(url: URL): Promise<string> {
  const seen = new Set<string>([url.href]);
  const hash = createHash("sha256");
  for (const href of seen) {
    const text = await readSource(href);
    hash.update(`${text.length}:${text}`);
    const imports = [...text.matchAll(IMPORTS)].map((match) => new URL(match[2] ?? "", href).href).sort();
    for (const found of imports) if (seen.size < MAX_MODULES) seen.add(found);
  }
  return hash.digest("hex");
}

async function readSource(href: string): Promise<string> {
  if (!href.startsWith("file:")) return href;
  const path = fileURLToPath(href);
  try {
    return await readFile(path, "utf8");
  } catch {
    // What looks like an import may stand in a string or a comment.
    return "";
  }
}

/**
 * Whether `warmUp` can see the seed. Only a function that takes its argument apart, and does not take the seed, can not:
 * then runs of all seeds share one template.
 */
export function warmUpUsesSeed(environment: Environment<Json>): boolean {
  if (environment.warmUp === undefined) return false;
  const source = environment.warmUp.toString();
  const parameters = /^[^({]*\(\s*\{([^{}]*)\}\s*\)/.exec(source)?.[1];
  return parameters === undefined || /\bseed\b|\.\.\./.test(parameters);
}
