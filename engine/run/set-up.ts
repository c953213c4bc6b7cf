/** From an environment to the root of the search: image, template, and the state after the reset. */

import { type Checkpoint, CoppiceError, type Host, type Sandbox, type Template } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import type { Environment } from "../environment.js";
import { aborted, type Place } from "../errors.js";
import type { Json } from "../json.js";
import { actionsOf, cellOf, checkObservation, checkScore, landmarksOf } from "../workers/environment-calls.js";
import { callEnvironment, InfrastructureFault } from "../workers/faults.js";
import type { ParkedCheckpoint } from "../workers/protocol.js";
import { warmUpUsesSeed } from "./environment-module.js";

/** A warm-up installs and starts things: it has more time than a step. */
const WARM_UP_STEPS = 12;

export interface SetUpParts {
  readonly host: Host;
  readonly environment: Environment<Json>;
  /** Of the environment's module. */
  readonly digest: string;
  readonly seed: number;
  readonly signal: AbortSignal;
  readonly onProgress: (message: string) => void;
}

export interface Root {
  readonly checkpoint: ParkedCheckpoint;
  readonly observation: Json;
  readonly cell: string;
  readonly score: number;
  readonly landmarks: Readonly<Record<string, string>>;
}

/** The template; made once a host for equal environments, and shared. */
export async function makeTemplate(parts: SetUpParts): Promise<Template> {
  const { host, environment, digest, seed, signal, onProgress } = parts;
  const { warmUp, name, memoryMiB, vcpus } = environment;
  const image = await host.images.build(environment.image, { signal, onProgress });
  const usesSeed = warmUpUsesSeed(environment);
  const timeoutMs = WARM_UP_STEPS * stepTimeout(environment);
  const options = {
    signal,
    onProgress,
    key: `environment/${name}/${digest}${usesSeed ? `/seed-${seed}` : ""}`,
    ...(memoryMiB === undefined ? {} : { memoryMiB }),
    ...(vcpus === undefined ? {} : { vcpus }),
    ...(warmUp === undefined
      ? {}
      : {
          warmUp: async (sandbox: Sandbox): Promise<void> => {
            const body = (inner: AbortSignal): Promise<void> => warmUp({ sandbox, signal: inner, seed });
            await attempt(() =>
              callEnvironment({ call: "warmUp", place: { environment: name }, sandbox, timeoutMs, signal, body }),
            );
          },
        }),
  };
  try {
    return await host.templates.create(image, options);
  } catch (error) {
    // The environment's own error says more than that the template could not be made.
    if (error instanceof CoppiceError && error.cause instanceof CoppiceError) throw error.cause;
    throw error;
  }
}

/** A fork of the template, reset: with what was seen. The caller owns the sandbox. */
export async function resetSandbox(
  template: Template,
  { environment, seed, signal }: Pick<SetUpParts, "environment" | "seed" | "signal">,
): Promise<{ readonly sandbox: Sandbox; readonly observation: Json }> {
  const sandbox = await template.fork({ signal });
  try {
    const place: Place = { environment: environment.name };
    const body = (inner: AbortSignal): Promise<Json> => environment.reset({ sandbox, signal: inner, seed });
    const timeoutMs = stepTimeout(environment);
    const seen = await attempt(() => callEnvironment({ call: "reset", place, sandbox, timeoutMs, signal, body }));
    return { sandbox, observation: checkObservation(seen, "reset", place) };
  } catch (error) {
    await sandbox.close();
    throw error;
  }
}

/** The state that all trials start from: reset once, so that it is the same for all of them. */
export async function makeRoot(template: Template, parts: SetUpParts): Promise<Root> {
  const { environment, signal } = parts;
  const place: Place = { environment: environment.name };
  const { sandbox, observation } = await resetSandbox(template, parts);
  const checkpoint = await sandbox.park({ signal, name: "root" });
  try {
    actionsOf(environment, observation, place);
    const cell = cellOf(environment, observation, place);
    const landmarks = landmarksOf(environment, observation, place);
    const score = await scoreOf(checkpoint, observation, parts);
    if (signal.aborted) throw aborted();
    const { id, dirtyPages } = checkpoint;
    return { checkpoint: { id, dirtyPages }, observation, cell, score, landmarks };
  } catch (error) {
    await checkpoint.release();
    throw error;
  }
}

async function scoreOf(checkpoint: Checkpoint, observation: Json, parts: SetUpParts): Promise<number> {
  const { environment, signal } = parts;
  if (environment.score === undefined) return 0;
  const place: Place = { environment: environment.name };
  await using sandbox = await checkpoint.fork({ signal });
  const timeoutMs = stepTimeout(environment);
  const body = async (inner: AbortSignal): Promise<unknown> =>
    environment.score?.({ sandbox, signal: inner }, observation);
  const score = await attempt(() => callEnvironment({ call: "score", place, sandbox, timeoutMs, signal, body }));
  return checkScore(score, place);
}

function stepTimeout(environment: Environment<Json>): number {
  return environment.stepTimeoutMs ?? DEFAULTS.stepTimeoutMs;
}

/** Outside of a trial there is nobody to try again: the host's own error is told. */
async function attempt<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof InfrastructureFault ? error.cause : error;
  }
}
