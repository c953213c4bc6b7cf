/** What a user writes to make something explorable: an environment over a sandbox. */

import type { ImageSpec, Sandbox } from "../sandbox-pool/index.js";
import { environmentProblem } from "./environment-check.js";
import { environmentInvalid } from "./errors.js";

export interface EnvironmentContext {
  readonly sandbox: Sandbox;
  /** Ends when the trial is cancelled or out of time. */
  readonly signal: AbortSignal;
}

export interface StepResult<Observation> {
  readonly observation: Observation;
  readonly reward: number;
  /** The environment has come to an end of its own. */
  readonly terminated: boolean;
  /** The episode was cut from outside. */
  readonly truncated: boolean;
  readonly info?: Readonly<Record<string, unknown>>;
}

/**
 * Observations and `info` must survive JSON unchanged: they are recorded and compared.
 *
 * Functions may be called on any worker thread and must keep nothing between calls: whatever must survive a step lives
 * in the guest or in the observation.
 */
export interface Environment<Observation = unknown> {
  /** Lower-case letters, digits and dashes. */
  readonly name: string;
  readonly image: ImageSpec;
  readonly memoryMiB?: number;
  readonly vcpus?: number;
  /** Milliseconds for one `reset`, `step` or `score`. Default 10,000. */
  readonly stepTimeoutMs?: number;
  /** Runs once in the booted guest, before the template is frozen. `seed` is the run's. */
  readonly warmUp?: (context: EnvironmentContext & { readonly seed: number }) => Promise<void>;
  /** After a fork of the template: usually nothing but looking. */
  readonly reset: (context: EnvironmentContext & { readonly seed: number }) => Promise<Observation>;
  readonly step: (
    context: EnvironmentContext,
    action: string,
    previous: Observation,
  ) => Promise<StepResult<Observation>>;
  /** What can be tried here, in a fixed order. Never empty. */
  readonly actions: (observation: Observation) => readonly string[];
  /** The situation that an observation shows, for archives: equal strings are one cell. */
  readonly cell: (observation: Observation) => string;
  /**
   * How good the state is. Runs in a fork that is thrown away, or, where the environment has terminated, in the sandbox that
   * is about to be; so it may disturb the guest. Asked only where the archive may want the state. Default: sum of rewards.
   */
  readonly score?: (context: EnvironmentContext, observation: Observation) => Promise<number>;
  /** Observations that a reader would want counted apart from cells, such as rooms: name to key of this observation. */
  readonly landmarks?: (observation: Observation) => Readonly<Record<string, string>>;
}

/**
 * Checks an environment and freezes it; a module's default export. Throws `ENVIRONMENT_INVALID`, which names the field.
 *
 * @example
 * export default defineEnvironment({
 *   name: "counter",
 *   image: { debian: {} },
 *   reset: async () => ({ count: 0 }),
 *   step: async ({ sandbox }, action, { count }) => {
 *     await sandbox.exec(["touch", `/tmp/${action}-${count}`]);
 *     return { observation: { count: count + 1 }, reward: 0, terminated: false, truncated: false };
 *   },
 *   actions: () => ["a", "b"],
 *   cell: ({ count }) => String(count),
 * });
 */
export function defineEnvironment<Observation>(environment: Environment<Observation>): Environment<Observation> {
  const problem = environmentProblem(environment);
  if (problem !== undefined) throw environmentInvalid(problem);
  return Object.freeze({ ...environment });
}
