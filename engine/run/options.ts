/** What a user gives to `run`, checked and completed. */

import { z } from "zod";

import type { Host } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import { optionInvalid } from "../errors.js";
import type { Json } from "../json.js";
import { type PolicySpec, randomPolicy } from "../policy/policy.js";
import type { SearchSpec } from "../scheduler/searches.js";
import { closest } from "./closest.js";
import type { Progress, VisitReport } from "./progress.js";

export interface RunOptions {
  /**
   * URL of a module whose default export is an environment. Worker threads import it too, which is why a value would
   * not do. A string is a URL or a path.
   */
  readonly environment: URL | string;
  /** `goExplore({ … })` or `randomRollouts({ … })`. */
  readonly search: SearchSpec;
  /** Default: `randomPolicy()`. */
  readonly policy?: PolicySpec;
  /** At least one limit. The run ends when the first is reached. */
  readonly budget: {
    /** Environment steps, exactly. */
    readonly steps?: number;
    /** Milliseconds from the first trial on; trials under way end after their step and still count. */
    readonly wallMs?: number;
  };
  /** A whole number from 0 to 2^53 - 1. Default 1. */
  readonly seed?: number;
  /** Worker threads, at most `inFlight`. They change how fast the run is, never its result. Default 2. */
  readonly workers?: number;
  /** Trials under way at once. Part of the result: equal seeds give equal trees where this is equal too. Default 4. */
  readonly inFlight?: number;
  /** Path of the SQLite file that records the run; made where missing, added to where there. Default: in memory. */
  readonly ledger?: string;
  /** Called about twice a second, and at the end. */
  readonly onProgress?: (progress: Progress) => void;
  /** Called for every step, in the order in which the search learns of them. */
  readonly onVisit?: (visit: VisitReport) => void;
  /** Called while images and templates are made. */
  readonly onSetUp?: (message: string) => void;
  /** Ends the run: `run` rejects with `ABORTED` when everything that it made is gone. */
  readonly signal?: AbortSignal;
  /** Default: `connectHost()`, closed at the end of the run. A host that is given is left open. */
  readonly host?: Host;
  /** Checkpoints kept hot; the least useful above it are derived again by replay when needed. Default 4,000. */
  readonly hotCheckpoints?: number;
}

/** All present. Only what shapes the result or its cost: callbacks and handles stay apart. */
export interface ResolvedOptions {
  readonly environment: URL;
  readonly search: SearchSpec;
  readonly policy: PolicySpec;
  readonly budget: { readonly steps: number | null; readonly wallMs: number | null };
  readonly seed: number;
  readonly workers: number;
  readonly inFlight: number;
  readonly hotCheckpoints: number;
}

const count = z.int().min(1).max(Number.MAX_SAFE_INTEGER);
const callback = z.custom<(value: never) => void>((value) => typeof value === "function", "must be a function");

const schema = z.strictObject({
  environment: z.union([z.instanceof(URL), z.string().min(1)]),
  search: z.custom<SearchSpec>(
    (value) => typeof value === "object" && value !== null && typeof (value as SearchSpec).start === "function",
    "must be what goExplore() or randomRollouts() returns",
  ),
  policy: z.strictObject({ kind: z.literal("random"), meanRepeat: z.number().min(1).optional() }).optional(),
  budget: z.strictObject({
    steps: count.optional(),
    wallMs: z
      .number()
      .positive()
      .max(2 ** 31 - 1)
      .optional(),
  }),
  seed: z.int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
  workers: z.int().min(1).max(256).optional(),
  inFlight: z.int().min(1).max(4096).optional(),
  ledger: z.string().min(1).optional(),
  onProgress: callback.optional(),
  onVisit: callback.optional(),
  onSetUp: callback.optional(),
  signal: z.instanceof(AbortSignal).optional(),
  host: z.custom<Host>((value) => typeof value === "object" && value !== null, "must be a Host").optional(),
  hotCheckpoints: count.optional(),
});

const KNOWN = Object.keys(schema.shape);

/** Throws `OPTION_INVALID`, which names the field and the remedy. */
export function resolveOptions(options: RunOptions): ResolvedOptions {
  const parsed = schema.safeParse(options);
  if (!parsed.success) throw explain(parsed.error.issues[0], options);
  const { budget, workers, inFlight } = options;
  if (budget.steps === undefined && budget.wallMs === undefined) {
    throw optionInvalid("budget", "has no limit", "Give budget.steps, budget.wallMs, or both.");
  }
  const window = inFlight ?? DEFAULTS.inFlight;
  if (workers !== undefined && workers > window) {
    throw optionInvalid(
      "workers",
      `is ${workers}, but option 'inFlight' lets only ${window} trials run at once`,
      `Raise inFlight to ${workers} or more (it is part of the result), or lower workers.`,
    );
  }
  return Object.freeze({
    environment: toUrl(options.environment),
    search: options.search,
    policy: options.policy ?? randomPolicy(),
    budget: Object.freeze({ steps: budget.steps ?? null, wallMs: budget.wallMs ?? null }),
    seed: options.seed ?? DEFAULTS.seed,
    workers: workers ?? Math.min(DEFAULTS.workers, window),
    inFlight: window,
    hotCheckpoints: options.hotCheckpoints ?? DEFAULTS.hotCheckpoints,
  });
}

/** What the ledger keeps of the options. */
export function recordedOptions(resolved: ResolvedOptions): Json {
  const { environment, search, policy, budget, seed, workers, inFlight, hotCheckpoints } = resolved;
  return {
    environment: environment.href,
    search: { name: search.name, options: search.options },
    policy: { ...policy },
    budget: { steps: budget.steps, wallMs: budget.wallMs },
    seed,
    workers,
    inFlight,
    hotCheckpoints,
  };
}

function toUrl(environment: URL | string): URL {
  if (environment instanceof URL) return environment;
  if (URL.canParse(environment)) return new URL(environment);
  return new URL(environment, `file://${process.cwd()}/`);
}

function explain(issue: z.core.$ZodIssue | undefined, options: RunOptions): Error {
  if (issue === undefined) return optionInvalid("options", "are not valid", "Compare them with RunOptions.");
  if (issue.code === "unrecognized_keys") {
    const key = [...issue.path, issue.keys[0]].join(".");
    const suggestion = issue.path.length === 0 ? closest(issue.keys[0] ?? "", KNOWN) : undefined;
    const known = issue.path.length === 0 ? KNOWN.join(", ") : "steps, wallMs";
    return optionInvalid(
      key,
      "is not known",
      suggestion === undefined ? `Leave it out; known are ${known}.` : `Did you mean '${suggestion}'?`,
    );
  }
  const field = issue.path.length === 0 ? "options" : issue.path.join(".");
  const value = issue.path.reduce<unknown>(
    (at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key],
    options,
  );
  const isShown = typeof value === "string" || typeof value === "number";
  return optionInvalid(field, isShown ? `is ${JSON.stringify(value)}` : "is not valid", remedyFor(issue));
}

function remedyFor(issue: z.core.$ZodIssue): string {
  if (issue.code === "too_small") return `Give a number of at least ${String(issue.minimum)}.`;
  if (issue.code === "too_big") return `Give a number of at most ${String(issue.maximum)}.`;
  if (issue.code === "invalid_type") return `Give a ${issue.expected === "int" ? "whole number" : issue.expected}.`;
  return `${issue.message.replace(/^Invalid input: /, "").replace(/^\w/, (letter) => letter.toUpperCase())}.`;
}
