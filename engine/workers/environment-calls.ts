/** The environment's functions with every answer checked, so that what is recorded is what a replay can compare. */

import type { Environment, StepResult } from "../environment.js";
import { environmentFailed, environmentValueInvalid, type Place } from "../errors.js";
import { type Json, jsonProblem } from "../json.js";

export type CheckedStep = StepResult<Json>;

const PLAIN_JSON = "Return plain JSON: objects, arrays, strings, finite numbers, booleans and null.";

function must(ok: boolean, call: string, place: Place, problem: string, remedy: string): void {
  if (!ok) throw environmentValueInvalid(call, place, problem, remedy);
}

export function checkObservation(observation: unknown, call: string, place: Place): Json {
  const problem = jsonProblem(observation, "observation");
  if (problem !== undefined) {
    throw environmentValueInvalid(call, place, `returned what JSON does not keep: ${problem}`, PLAIN_JSON);
  }
  return observation as Json;
}

export function checkStep(result: unknown, place: Place): CheckedStep {
  const shape = "Return { observation, reward, terminated, truncated, info? }.";
  must(typeof result === "object" && result !== null, "step", place, "returned no object", shape);
  const step = result as Partial<CheckedStep>;
  must(Number.isFinite(step.reward), "step", place, `returned reward ${String(step.reward)}`, shape);
  for (const name of ["terminated", "truncated"] as const) {
    must(typeof step[name] === "boolean", "step", place, `returned ${name} ${String(step[name])}`, shape);
  }
  checkObservation(step.observation, "step", place);
  const problem = step.info === undefined ? undefined : jsonProblem(step.info, "info");
  must(problem === undefined, "step", place, `returned what JSON does not keep: ${problem}`, PLAIN_JSON);
  return step as CheckedStep;
}

export function checkScore(score: unknown, place: Place): number {
  must(Number.isFinite(score), "score", place, `returned ${String(score)}`, "Return a finite number.");
  return score as number;
}

export function actionsOf(environment: Environment<Json>, observation: Json, place: Place): readonly string[] {
  const actions: unknown = guarded("actions", place, () => environment.actions(observation));
  const remedy = "Return at least one action, each a string; return terminated from step() where there is none.";
  must(Array.isArray(actions) && actions.length > 0, "actions", place, "returned no action", remedy);
  const list = actions as readonly unknown[];
  must(
    list.every((action) => typeof action === "string"),
    "actions",
    place,
    "returned what is no string",
    remedy,
  );
  return list as readonly string[];
}

export function cellOf(environment: Environment<Json>, observation: Json, place: Place): string {
  const cell: unknown = guarded("cell", place, () => environment.cell(observation));
  must(
    typeof cell === "string",
    "cell",
    place,
    `returned a ${typeof cell}`,
    "Return a string that names the situation.",
  );
  return cell as string;
}

export function landmarksOf(
  environment: Environment<Json>,
  observation: Json,
  place: Place,
): Readonly<Record<string, string>> {
  if (environment.landmarks === undefined) return {};
  const marks: unknown = guarded("landmarks", place, () => environment.landmarks?.(observation));
  const ok =
    typeof marks === "object" && marks !== null && Object.values(marks).every((key) => typeof key === "string");
  must(ok, "landmarks", place, "returned no record of strings", "Return an object of strings, {} where there is none.");
  return marks as Readonly<Record<string, string>>;
}

function guarded<T>(call: string, place: Place, body: () => T): T {
  try {
    return body();
  } catch (error) {
    throw environmentFailed(call, place, error);
  }
}
