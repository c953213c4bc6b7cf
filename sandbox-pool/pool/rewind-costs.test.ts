import { describe, expect, it } from "vitest";

import { DEFAULTS } from "../defaults.js";
import { RewindCosts } from "./rewind-costs.js";

const WAYS = ["in-place", "warm-fork"] as const;

function measured(): RewindCosts {
  const costs = new RewindCosts();
  costs.note("cp", "in-place", 5_000);
  costs.note("cp", "warm-fork", 9_000);
  return costs;
}

describe("choice of a way back", () => {
  it("is each way once before any is compared", () => {
    const costs = new RewindCosts();
    expect(costs.choose("cp", WAYS)).toBe("in-place");
    costs.note("cp", "in-place", 1);
    expect(costs.choose("cp", WAYS)).toBe("warm-fork");
    expect(costs.choose("cp", ["in-place", "cold-fork"])).toBe("cold-fork");
  });

  it("is the quickest of those that are open, at this checkpoint", () => {
    const costs = measured();
    expect(costs.choose("cp", WAYS)).toBe("in-place");
    expect(costs.choose("cp", ["warm-fork"])).toBe("warm-fork");
    costs.note("other", "in-place", 20_000);
    costs.note("other", "warm-fork", 9_000);
    expect(costs.choose("other", WAYS)).toBe("warm-fork");
  });

  it("follows what the ways take of late", () => {
    const costs = measured();
    for (let index = 0; index < 10; index += 1) costs.note("cp", "in-place", 30_000);
    expect(costs.choose("cp", WAYS)).toBe("warm-fork");
  });

  it("is another one now and then, so that each stays measured", () => {
    const costs = measured();
    const choices = Array.from({ length: 2 * DEFAULTS.rewind.remeasureEvery }, () => costs.choose("cp", WAYS));
    expect(choices.filter((way) => way === "warm-fork")).toHaveLength(1);
  });

  it("begins anew for a checkpoint that was forgotten", () => {
    const costs = measured();
    costs.forget("cp");
    expect(costs.choose("cp", ["warm-fork", "in-place"])).toBe("warm-fork");
  });
});
