import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";

import type { Host } from "../../sandbox-pool/index.js";
import { type BuiltSources, buildSources, WALK } from "../../test/engine/build-sources.js";
import { walkProgram } from "../../test/engine/walk-program.js";
import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { RunOptions } from "../run/options.js";
import { type RunEnvironment, type RunResult, runWith } from "../run/run.js";
import { goExplore } from "../scheduler/searches.js";
import { createThreads } from "./threads.js";

const WORKER = "engine/workers/worker.ts";

const outside: RunEnvironment = {
  connectHost: () => Promise.reject(new Error("give the host as an option")),
  now: () => 0,
  createExecutor: (options) => createThreads({ ...options, filename: built.path(WORKER) }),
};

let built: BuiltSources;
let daemon: FakeDaemon;
let host: Host;

beforeAll(async () => {
  built = await buildSources(WORKER, WALK);
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
});

beforeEach(async () => {
  daemon = await startFakeDaemon({ programs: { walk: walkProgram } });
  host = await daemon.connect({ pool: { maxReady: 0 } });
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

function explore(options: Partial<RunOptions> = {}): Promise<RunResult> {
  return runWith(outside, {
    environment: built.url(WALK),
    search: goExplore({ stepsPerTrial: 10 }),
    budget: { steps: 150 },
    seed: 7,
    host,
    ...options,
  });
}

function variant(query: string): URL {
  return new URL(`?${query}`, built.url(WALK));
}

function leftOnHost(): readonly string[] {
  const checkpoints = [...daemon.state.checkpoints.values()].filter(({ session }) => session !== undefined);
  return [...daemon.state.sandboxes.keys(), ...checkpoints.map(({ id }) => id)];
}

describe("worker threads", () => {
  it("give the same tree for one and for four of them (invariant 7)", async () => {
    const trees: string[] = [];
    for (const workers of [1, 4]) trees.push(JSON.stringify((await explore({ workers })).tree));
    expect(trees[1]).toBe(trees[0]);
  });

  it("leave nothing on the host when the run ends", async () => {
    await explore();
    expect(leftOnHost()).toEqual([]);
  });

  it("that an environment ends are replaced, and the run fails when it does so every time", async () => {
    await expect(explore({ environment: variant("fail=exit") })).rejects.toThrow(
      expect.objectContaining({ code: "TRIAL_LOST", cause: expect.objectContaining({ code: "WORKER_LOST" }) }),
    );
  });

  it("tell an environment's error with the place where it happened", async () => {
    await expect(explore({ environment: variant("fail=step") })).rejects.toThrow(
      expect.objectContaining({ code: "ENVIRONMENT_FAILED", message: expect.stringMatching(/trial \d+, step \d+/) }),
    );
    expect(leftOnHost()).toEqual([]);
  });

  it("that spin do not keep an aborted run from ending", async () => {
    const abort = new AbortController();
    const run = explore({ environment: variant("fail=spin"), signal: abort.signal });
    setTimeout(() => abort.abort(), 1_500);
    const begin = performance.now();
    await expect(run).rejects.toThrow(expect.objectContaining({ code: "ABORTED" }));
    expect(performance.now() - begin).toBeLessThan(6_500);
  });
});
