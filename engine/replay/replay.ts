/** Proof that checkpoints are what they claim: the same actions from the template must show the same. */

import type { Template } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import type { Environment } from "../environment.js";
import { canonicalJson, type Json } from "../json.js";
import { resetSandbox } from "../run/set-up.js";
import { checkStep } from "../workers/environment-calls.js";
import { callEnvironment } from "../workers/faults.js";

export interface ReplayOptions {
  readonly template: Template;
  readonly environment: Environment<Json>;
  readonly seed: number;
  /** What the reset showed. */
  readonly root: Json;
  readonly steps: readonly { readonly action: string; readonly observation: Json }[];
  readonly signal: AbortSignal;
}

export interface ReplayMismatch {
  /** 0 for the reset, then 1, 2, … */
  readonly step: number;
  /** null for the reset. */
  readonly action: string | null;
  readonly expected: Json;
  readonly actual: Json;
}

export interface ReplayResult {
  readonly steps: number;
  readonly mismatches: readonly ReplayMismatch[];
}

/** Without one checkpoint on the way: one sandbox, forked from the template, does it all. */
export async function replayTrajectory(options: ReplayOptions): Promise<ReplayResult> {
  const { template, environment, signal } = options;
  const mismatches: ReplayMismatch[] = [];
  const { sandbox, observation: first } = await resetSandbox(template, options);
  await using _ = sandbox;
  compare({ step: 0, action: null, expected: options.root, actual: first }, mismatches);
  let previous = first;
  for (const [index, { action, observation: expected }] of options.steps.entries()) {
    const place = { environment: environment.name, step: index + 1, action };
    const timeoutMs = environment.stepTimeoutMs ?? DEFAULTS.stepTimeoutMs;
    const before = previous;
    const body = (inner: AbortSignal): Promise<unknown> => environment.step({ sandbox, signal: inner }, action, before);
    const result = checkStep(await callEnvironment({ call: "step", place, sandbox, timeoutMs, signal, body }), place);
    compare({ step: index + 1, action, expected, actual: result.observation }, mismatches);
    previous = result.observation;
  }
  return { steps: options.steps.length, mismatches };
}

function compare(pair: ReplayMismatch, mismatches: ReplayMismatch[]): void {
  if (canonicalJson(pair.expected) !== canonicalJson(pair.actual)) mismatches.push(pair);
}
