import { describe, expect, test } from "vitest";
import { gumbelMuZero, puct, SearchError, type StepResult, type TreeTrial, uct } from "../index.js";

function refusal(call: () => unknown): [string, string | undefined] {
  try {
    call();
  } catch (error) {
    if (error instanceof SearchError) return [error.code, error.field];
    throw error;
  }
  throw new Error("Nothing was refused");
}

const root = { actions: ["a", "b"] };

describe("options that a tree search can not take", () => {
  test.each<[string, object]>([
    ["root.actions", { root: {} }],
    ["root.actions", { root: { actions: ["a", "a"] } }],
    ["root.priors", { root: { actions: ["a"], priors: [1, 2] } }],
    ["root.priors", { root: { actions: ["a"], priors: [-1] } }],
    ["root.mask", { root: { actions: ["a"], mask: [] } }],
    ["root.value", { root: { ...root, value: Number.NaN } }],
    ["root.player", { root: { ...root, player: 1 } }],
    ["players", { players: 3 }],
    ["discount", { discount: 0 }],
    ["discount", { discount: 1.1 }],
    ["range", { range: [1, 0] }],
    ["range", { range: [0, Number.POSITIVE_INFINITY] }],
    ["widening.k", { widening: { k: 0, alpha: 0.5 } }],
    ["widening.alpha", { widening: { k: 1, alpha: 2 } }],
    ["outcomeWidening", { outcomeWidening: { k: 1, alpha: 0.5 } }],
    ["transpositions", { stochastic: true, transpositions: true }],
    ["solver", { stochastic: true, solver: true }],
    ["proposals", { stochastic: true, proposals: true }],
    ["inFlight", { inFlight: "no" }],
    ["window", { window: 0 }],
    ["maxNodes", { maxNodes: 1.5 }],
    ["formula", { formula: "ucb2" }],
    ["range", { formula: "tuned" }],
    ["exploration", { formula: "tuned", range: [0, 1], exploration: 1 }],
    ["unheard", { unheard: 1 }],
  ])("uct, %s in %j", (field, options) => {
    expect(refusal(() => uct.init({ root, ...options } as never, 1))).toEqual(["INVALID_ARGUMENT", field]);
  });

  test.each<[string, object]>([
    ["range", { form: "alphazero" }],
    ["range", { form: "alphazero", range: [0, 2] }],
    ["proposals", { proposals: true }],
    ["noise.given", { noise: { given: [1] } }],
    ["noise.alpha", { noise: { alpha: 0 } }],
    ["temperature", { temperature: -1 }],
  ])("puct, %s in %j", (field, options) => {
    expect(refusal(() => puct.init({ root, ...options } as never, 1))).toEqual(["INVALID_ARGUMENT", field]);
  });

  test.each<[string, object]>([
    ["maxSimulations", {}],
    ["proposals", { maxSimulations: 9, proposals: true }],
    ["solver", { maxSimulations: 9, solver: true }],
    ["inFlight", { maxSimulations: 9, inFlight: "virtual-loss" }],
    ["gumbel", { maxSimulations: 9, gumbel: [1] }],
  ])("gumbel muzero, %s in %j", (field, options) => {
    expect(refusal(() => gumbelMuZero.init({ root, ...options } as never, 1))).toEqual(["INVALID_ARGUMENT", field]);
  });
});

describe("outcomes that contradict the search", () => {
  const good: StepResult = { kind: "value", reward: 0, value: 0, terminated: false, actions: [] };

  test.each<[string, object, Partial<StepResult>]>([
    ["value", {}, { terminated: true, value: 1 }],
    ["actions", {}, { actions: undefined as never }],
    ["actions", {}, { actions: ["a", "a"] }],
    ["action", {}, { action: "a" }],
    ["player", { players: 2 }, {}],
    ["player", {}, { player: 1 }],
    ["key", { stochastic: true }, {}],
    ["value", { range: [0, 1] }, { value: 2 }],
    ["checkpoint", { root: { ...root, checkpoint: "one" } }, { checkpoint: "one" }],
    ["reward", {}, { reward: "1" as never }],
    ["kind", {}, { kind: "no" as never }],
  ])("%s, %j, %j", (field, options, wrong) => {
    const state = uct.init({ root, ...options } as never, 1);
    const trial = uct.ask(state, 1).trials[0] as TreeTrial;
    const before = JSON.stringify(uct.serialise(state));
    const tell = () => uct.tell(state, trial.id, trial.attempt, { ...good, ...wrong } as StepResult);
    expect(refusal(tell)).toEqual(["INVALID_OUTCOME", field]);
    expect(JSON.stringify(uct.serialise(state))).toBe(before);
  });

  test("trial that was never asked", () => {
    const state = uct.init({ root }, 1);
    expect(refusal(() => uct.tell(state, 0, 0, good))[0]).toBe("UNKNOWN_TRIAL");
  });
});

describe("states that were damaged", () => {
  function serialised(): Record<string, never> {
    const state = uct.init({ root }, 1);
    const { trials } = uct.ask(state, 2);
    uct.tell(state, 1, 0, { kind: "value", reward: 0, value: 0, terminated: false, actions: ["c"], priors: [1] });
    expect(trials).toHaveLength(2);
    return JSON.parse(JSON.stringify(uct.serialise(state))) as Record<string, never>;
  }

  test("of another algorithm", () => {
    expect(refusal(() => puct.restore(serialised()))[0]).toBe("INCOMPATIBLE_STATE");
  });

  test("any number or text in it replaced by nonsense, refused or restored, never another error", () => {
    const damage = (value: unknown, path: readonly string[], list: (readonly string[])[]): void => {
      if (typeof value === "object" && value !== null)
        for (const [key, entry] of Object.entries(value)) damage(entry, [...path, key], list);
      else list.push(path);
    };
    const places: (readonly string[])[] = [];
    damage(serialised(), [], places);
    const structural = places.filter(([part]) => part === "tree" || part === "book");
    let refused = 0;
    for (const path of structural) {
      const state = serialised() as Record<string, unknown>;
      let at = state;
      for (const key of path.slice(0, -1)) at = at[key] as Record<string, unknown>;
      at[path.at(-1) as string] = { nonsense: true };
      const [code] = refusal(() => uct.restore(state));
      if (code === "INCOMPATIBLE_STATE") refused += 1;
    }
    expect(refused).toBe(structural.length);
  });
});
