import { createHash } from "node:crypto";

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";

import type { Host, Template } from "../../sandbox-pool/index.js";
import { type BuiltSources, buildSources, WALK } from "../../test/engine/build-sources.js";
import { type Walk, walkOn, walkProgram } from "../../test/engine/walk-program.js";
import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import { probeLatency } from "../cli/latency-probe.js";
import type { Environment } from "../environment.js";
import type { Json } from "../json.js";
import { loadEnvironment } from "../run/environment-module.js";
import { makeTemplate } from "../run/set-up.js";
import { type ReplayResult, replayTrajectory } from "./replay.js";

const ACTIONS = ["south", "east", "east", "south", "take"];
const ROOT: Walk = { x: 0, y: 0, gold: false, moves: 0, dead: false };
const signal = new AbortController().signal;

let built: BuiltSources;
let daemon: FakeDaemon;
let host: Host;
let environment: Environment<Json>;
let template: Template;

beforeAll(async () => {
  built = await buildSources(WALK);
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
});

beforeEach(async () => {
  daemon = await startFakeDaemon({ programs: { walk: walkProgram } });
  host = await daemon.connect();
  environment = await loadEnvironment(built.url(WALK));
  const digest = createHash("sha256").update("walk").digest("hex");
  template = await makeTemplate({ host, environment, digest, seed: 1, signal, onProgress: () => {} });
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

/** What the game really shows after each action. */
function record(): { action: string; observation: Json }[] {
  let at = ROOT;
  return ACTIONS.map((action) => {
    at = walkOn(at, action);
    return { action, observation: { ...at } };
  });
}

async function replay(steps: readonly { action: string; observation: Json }[], root: Json): Promise<ReplayResult> {
  return await replayTrajectory({ template, environment, seed: 1, root, steps, signal });
}

describe("a replay from the template", () => {
  it("of what was recorded has no mismatch, and leaves no sandbox", async () => {
    expect(await replay(record(), { ...ROOT })).toEqual({ steps: ACTIONS.length, mismatches: [] });
    expect(daemon.state.sandboxes.size).toBe(0);
  });

  it("names the step and both observations where it differs", async () => {
    const steps = record();
    const wrong = { ...ROOT, x: 5 };
    steps[2] = { action: "east", observation: wrong };
    const { mismatches } = await replay(steps, { ...ROOT });
    expect(mismatches).toMatchObject([{ step: 3, action: "east", expected: wrong, actual: { x: 1, y: 1 } }]);
  });

  it("compares what the reset shows as well", async () => {
    const { mismatches } = await replay([], { ...ROOT, moves: 1 });
    expect(mismatches).toMatchObject([{ step: 0, action: null }]);
  });
});

describe("the latency probe", () => {
  it("measures each operation once a round, with forks ahead and on demand apart", async () => {
    const { fork, coldFork, park, exec, childBytes } = await probeLatency({ host, template, rounds: 5, signal });
    expect([fork.n + coldFork.n, park.n, exec.n]).toEqual([10, 5, 5]);
    expect(fork.n).toBeGreaterThan(0);
    expect(childBytes).toBeGreaterThan(0);
  });
});
