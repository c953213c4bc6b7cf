import { describe, expect, it } from "vitest";

import { goExplore } from "../scheduler/searches.js";
import { type RunOptions, resolveOptions } from "./options.js";

const good: RunOptions = { environment: "./somewhere.js", search: goExplore(), budget: { steps: 10 } };

function resolving(options: object): () => unknown {
  return () => resolveOptions({ ...good, ...options } as RunOptions);
}

describe("options of a run", () => {
  it("are complete after resolving, and frozen", () => {
    const resolved = resolveOptions(good);
    expect(resolved).toMatchObject({ seed: 1, workers: 2, inFlight: 4, budget: { steps: 10, wallMs: null } });
    expect(Object.isFrozen(resolved)).toBe(true);
  });

  it("take a path relative to the working directory as environment", () => {
    expect(resolveOptions(good).environment.href).toBe(new URL("./somewhere.js", `file://${process.cwd()}/`).href);
  });

  it.each([
    ["an unknown option", { sead: 1 }, "sead", "Did you mean 'seed'?"],
    ["an unknown limit of the budget", { budget: { step: 3 } }, "budget.step", "known are steps, wallMs"],
    ["steps of 0", { budget: { steps: 0 } }, "budget.steps", "at least 1"],
    ["half a step", { budget: { steps: 1.5 } }, "budget.steps", "a whole number"],
    ["a budget without limits", { budget: {} }, "budget", "budget.steps, budget.wallMs"],
    ["a seed that is no number", { seed: "seven" }, "seed", "Give a number"],
    ["a seed below 0", { seed: -1 }, "seed", "at least 0"],
    ["a seed that a number can not hold exactly", { seed: 2 ** 53 }, "seed", "9007199254740991"],
    ["0 workers", { workers: 0 }, "workers", "at least 1"],
    ["a search that is a word", { search: "go-explore" }, "search", "goExplore()"],
    ["a progress callback that is none", { onProgress: 3 }, "onProgress", "function"],
  ])("with %s are refused, naming field and remedy", (_what, options, field, remedy) => {
    expect(resolving(options)).toThrow(
      expect.objectContaining({
        code: "OPTION_INVALID",
        message: expect.stringContaining(`'${field}'`),
        remedy: expect.stringContaining(remedy),
      }),
    );
  });

  it("that contradict each other are refused, naming both", () => {
    expect(resolving({ workers: 8, inFlight: 4 })).toThrow(/'workers'.*'inFlight'/);
  });

  it("of the search are refused when the run starts it, naming the field", () => {
    const search = goExplore({ stepsPerTrial: 0 });
    const root = { cell: "a", score: 0, landmarks: {}, checkpoint: "root" };
    const settings = { root, seed: 1, window: 1, maxSteps: 1, optimiseScore: false };
    expect(() => search.start(settings)).toThrow(/stepsPerTrial/);
  });
});
