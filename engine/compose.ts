/** The one place where the engine meets a real host: everything else sees interfaces. */

import { fileURLToPath } from "node:url";

import { connectHost } from "../sandbox-pool/index.js";
import type { RunOptions } from "./run/options.js";
import { type RunEnvironment, type RunResult, runWith } from "./run/run.js";
import { createThreads } from "./workers/threads.js";

const outside: RunEnvironment = {
  connectHost: ({ signal }) => connectHost({ signal }),
  createExecutor: (options) =>
    createThreads({ ...options, filename: fileURLToPath(new URL("./workers/worker.js", import.meta.url)) }),
  now: () => Date.now(),
};

/**
 * Explores an environment with a search, until the budget ends.
 *
 * @example
 * const result = await run({
 *   environment: new URL("./adventure.js", import.meta.url),
 *   search: goExplore({ stepsPerTrial: 20 }),
 *   budget: { steps: 3_000 },
 *   seed: 7,
 * });
 * result.best.score;
 */
export async function run(options: RunOptions): Promise<RunResult> {
  return await runWith(outside, options);
}
