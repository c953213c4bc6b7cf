import { afterAll, beforeAll, expect, it } from "vitest";

import { runWith } from "../../engine/run/run.js";
import { goExplore } from "../../engine/scheduler/searches.js";
import { connectHost } from "../../sandbox-pool/index.js";
import { type BuiltSources, buildSources } from "../../test/engine/build-sources.js";
import { inlineEnvironment } from "../../test/engine/inline-executor.js";

const SOURCE = "examples/lock/index.ts";

let built: BuiltSources;

beforeAll(async () => {
  built = await buildSources(SOURCE);
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
});

it("the smallest environment is explored in real guests until the lock is open", async () => {
  await using host = await connectHost();
  const { best } = await runWith(inlineEnvironment({ host }), {
    environment: built.url(SOURCE),
    search: goExplore({ stepsPerTrial: 4 }),
    budget: { steps: 80 },
    seed: 7,
    host,
  });
  expect(best.score).toBe(1);
  expect(best.trajectory.slice(-4).map(({ action }) => action)).toEqual(["l", "r", "r", "l"]);
});
