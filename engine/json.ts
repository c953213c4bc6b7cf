/** JSON that is compared and hashed: one text for one value. */

import { createHash } from "node:crypto";

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Deeper values are refused: they would overflow the stack of whoever reads them. */
const MAX_DEPTH = 100;

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Says where `value` would not survive JSON unchanged, or undefined where it does. */
export function jsonProblem(value: unknown, path = "value", depth = 0): string | undefined {
  if (depth > MAX_DEPTH) return `${path} is nested more than ${MAX_DEPTH} levels deep`;
  if (value === null || typeof value === "boolean") return undefined;
  if (typeof value === "string") return LONE_SURROGATE.test(value) ? `${path} has a lone surrogate` : undefined;
  if (typeof value === "number") {
    return Number.isFinite(value) && !Object.is(value, -0)
      ? undefined
      : `${path} is ${Object.is(value, -0) ? "-0" : value}`;
  }
  if (typeof value !== "object") return `${path} is ${value === undefined ? "undefined" : `a ${typeof value}`}`;
  if (Array.isArray(value)) return arrayProblem(value, path, depth);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    return `${path} is a ${(value as object).constructor?.name ?? "class instance"}, not a plain object`;
  }
  if (Object.getOwnPropertySymbols(value).length > 0) return `${path} has a symbol as key`;
  for (const [key, item] of Object.entries(value)) {
    const problem = LONE_SURROGATE.test(key)
      ? `${path} has a malformed key`
      : jsonProblem(item, `${path}.${key}`, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function arrayProblem(value: readonly unknown[], path: string, depth: number): string | undefined {
  // By index, because iteration methods skip holes, which JSON turns into null.
  for (let index = 0; index < value.length; index++) {
    const problem = jsonProblem(value[index], `${path}[${index}]`, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** JSON text with sorted keys: equal values give equal text. */
export function canonicalJson(value: Json): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item: Json) => canonicalJson(item)).join(",")}]`;
  const entries = Object.entries(value as { readonly [key: string]: Json });
  entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalJson(item)}`).join(",")}}`;
}

/** SHA-256 of the canonical text, 32 hexadecimal digits: what a replay compares. */
export function digestOf(value: Json): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex").slice(0, 32);
}
