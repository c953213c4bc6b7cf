/** What makes a value an environment. */

import { z } from "zod";

const call = z.custom<(value: never) => unknown>((value) => typeof value === "function", "is not a function");

const schema = z.looseObject({
  name: z
    .string()
    .max(64)
    .regex(/^[a-z0-9]+(-[a-z0-9]+)*$/, "is not of lower-case letters, digits and single dashes"),
  image: z.looseObject({ debian: z.looseObject({}) }),
  memoryMiB: z.number().positive().optional(),
  vcpus: z.int().positive().optional(),
  stepTimeoutMs: z.number().positive().optional(),
  warmUp: call.optional(),
  reset: call,
  step: call,
  actions: call,
  cell: call,
  score: call.optional(),
  landmarks: call.optional(),
});

/** Says what is wrong with the first field that is, or undefined. */
export function environmentProblem(value: unknown): string | undefined {
  const parsed = schema.safeParse(value);
  if (parsed.success) return undefined;
  const issue = parsed.error.issues[0];
  const message = issue?.message.replace(/^Invalid input: /, "") ?? "is not valid";
  return issue === undefined || issue.path.length === 0 ? message : `${issue.path.join(".")}: ${message}`;
}
