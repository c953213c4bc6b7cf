import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";

import type { Host } from "../../sandbox-pool/index.js";
import { type BuiltSources, buildSources, WALK } from "../../test/engine/build-sources.js";
import { inlineEnvironment } from "../../test/engine/inline-executor.js";
import { walkProgram } from "../../test/engine/walk-program.js";
import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import { goExplore } from "../scheduler/searches.js";
import type { RunOptions } from "./options.js";
import { type RunResult, runWith } from "./run.js";

const NOT_THERE = "test/engine/walk-program.ts";

let built: BuiltSources;
let daemon: FakeDaemon;
let host: Host;

beforeAll(async () => {
  built = await buildSources(WALK, NOT_THERE);
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
  return runWith(inlineEnvironment({ host }), {
    environment: built.url(WALK),
    search: goExplore({ stepsPerTrial: 10 }),
    budget: { steps: 100 },
    seed: 7,
    host,
    ...options,
  });
}

function leftOnHost(): readonly string[] {
  const checkpoints = [...daemon.state.checkpoints.values()].filter(({ session }) => session !== undefined);
  return [...daemon.state.sandboxes.keys(), ...checkpoints.map(({ id }) => id)];
}

describe("a failure of the host", () => {
  it.each([
    ["a guest that ends in a step", { method: "sandbox.call", op: "pty.send", nth: 20, action: { kind: "endGuest" } }],
    ["a fork that fails", { method: "sandbox.fork", nth: 9, action: { kind: "fail" } }],
    ["a child that fails", { method: "sandbox.fork", nth: 12, action: { kind: "failChild", index: 0 } }],
    ["a park that fails", { method: "sandbox.park", nth: 6, action: { kind: "fail" } }],
  ] as const)(
    "such as %s is tried again, and the tree is as if it had not been (invariant 11)",
    async (_what, fault) => {
      const calm = await explore();
      daemon.inject(fault);
      const troubled = await explore();
      expect(JSON.stringify(troubled.tree)).toBe(JSON.stringify(calm.tree));
      expect(troubled.spent.steps).toBe(100);
      expect(leftOnHost()).toEqual([]);
    },
  );

  it("that stays ends the run with TRIAL_LOST, naming the trial and the cause", async () => {
    let isDown = false;
    const onVisit = (): void => {
      if (isDown) return;
      isDown = true;
      daemon.inject({ method: "sandbox.call", op: "pty.send", nth: "every", action: { kind: "endGuest" } });
    };
    const run = explore({ onVisit });
    await expect(run).rejects.toThrow(
      expect.objectContaining({ code: "TRIAL_LOST", faultDomain: "host", message: expect.stringMatching(/Trial \d+/) }),
    );
    expect(leftOnHost()).toEqual([]);
  });

  it("that loses a checkpoint is made good by replay from the nearest one before it", async () => {
    const calm = await explore();
    let lost = 0;
    const onVisit = (): void => {
      // The host loses one checkpoint that trials start from, though nobody dropped it.
      const hot = [...daemon.state.checkpoints.values()].filter(
        ({ session, name }) => session !== undefined && name !== "root",
      );
      const victim = hot[0];
      if (lost > 0 || hot.length < 5 || victim === undefined) return;
      daemon.state.checkpoints.delete(victim.id);
      lost++;
    };
    const troubled = await explore({ onVisit });
    expect(lost).toBe(1);
    expect(JSON.stringify(troubled.tree)).toBe(JSON.stringify(calm.tree));
  });
});

describe("an environment's failure", () => {
  it.each([
    ["warmUp", "ENVIRONMENT_FAILED"],
    ["reset", "ENVIRONMENT_FAILED"],
    ["actions", "ENVIRONMENT_FAILED"],
    ["score", "ENVIRONMENT_FAILED"],
  ])("in %s ends the run before the first trial, naming call and environment", async (call, code) => {
    await expect(explore({ environment: new URL(`?fail=${call}`, built.url(WALK)) })).rejects.toThrow(
      expect.objectContaining({
        code,
        faultDomain: "user",
        message: expect.stringMatching(new RegExp(`${call}\\(\\).*'walk'.*${call} is broken`)),
      }),
    );
    expect(leftOnHost()).toEqual([]);
  });

  it.each([["step"], ["cell"]])("in %s ends the run, naming trial, step and action", async (call) => {
    await expect(explore({ environment: new URL(`?fail=${call}`, built.url(WALK)) })).rejects.toThrow(
      expect.objectContaining({
        code: "ENVIRONMENT_FAILED",
        message: expect.stringMatching(/'walk', trial \d+, step \d+, action "\w+"/),
      }),
    );
    expect(leftOnHost()).toEqual([]);
  });

  it("to answer in time ends the run, as the sandbox was alive", async () => {
    await expect(explore({ environment: new URL("?fail=hang&timeout=100", built.url(WALK)) })).rejects.toThrow(
      expect.objectContaining({ code: "ENVIRONMENT_TIMEOUT", message: expect.stringContaining("100 ms") }),
    );
    expect(leftOnHost()).toEqual([]);
  });

  it("to return JSON names the path of what is not", async () => {
    await expect(explore({ environment: new URL("?fail=date", built.url(WALK)) })).rejects.toThrow(
      expect.objectContaining({
        code: "ENVIRONMENT_VALUE_INVALID",
        message: expect.stringContaining("observation.at is a Date"),
      }),
    );
  });

  it("to be a module is told with what is wrong", async () => {
    await expect(explore({ environment: new URL("./none.js", built.url(WALK)) })).rejects.toThrow(
      expect.objectContaining({ code: "ENVIRONMENT_MODULE_INVALID", message: expect.stringContaining("none.js") }),
    );
    await expect(explore({ environment: built.url(NOT_THERE) })).rejects.toThrow(/no default export/);
  });
});
