/** Environments are modules, so that every thread can import them. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { CoppiceError } from "../../sandbox-pool/index.js";
import type { Environment } from "../environment.js";
import { environmentProblem } from "../environment-check.js";
import { environmentModuleInvalid, reasonOf } from "../errors.js";
import type { Json } from "../json.js";

export async function loadEnvironment(url: URL): Promise<Environment<Json>> {
  let module: { readonly default?: unknown };
  try {
    module = (await import(url.href)) as typeof module;
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
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
  const problem = environmentProblem(module.default);
  if (problem !== undefined) {
    const remedy = "Compare it with the Environment interface.";
    throw environmentModuleInvalid(url.href, `exports no environment: ${problem}`, remedy);
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
