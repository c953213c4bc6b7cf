import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  asha,
  drawInteger,
  type HalvingOptions,
  type HalvingOutcome,
  type HalvingSearch,
  type HalvingState,
  type HalvingTrial,
  SearchError,
  successiveHalving,
} from "../index.js";
import { ACCIDENT, type Drive, drive } from "../testing/drive.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, type Schedule, scheduleOf } from "../testing/schedule.js";
import { checkpointOf } from "../testing/tree-run.js";

interface Golden {
  readonly cases: readonly {
    readonly options: HalvingOptions;
    readonly rungs: readonly number[];
    readonly halving: readonly (readonly [candidate: number, rung: number])[];
    readonly asha: readonly (readonly [candidate: number, rung: number])[];
  }[];
}

type World = (trial: HalvingTrial) => HalvingOutcome;

const { cases } = JSON.parse(readFileSync(new URL("../golden/halving.json", import.meta.url), "utf8")) as Golden;
const searches = [successiveHalving, asha];

/** The function of derive_halving.py. */
const table: World = ({ id, candidate, rung }) => {
  const score = ((candidate * 37 + 11) % 101) + rung * ((candidate * 13) % 7) * 5;
  return { kind: "value", score, checkpoint: `${id}` };
};

function run(
  search: HalvingSearch,
  initial: HalvingState,
  world: World,
  schedule: Schedule,
): Drive<HalvingState, HalvingTrial> {
  return drive(search, { initial, outcomeOf: world, accident: ACCIDENT, namesOf: checkpointOf }, schedule);
}

describe.each(cases)("golden, $options", ({ options, rungs, halving, asha: asynchronous }) => {
  test.each([
    [successiveHalving, halving],
    [asha, asynchronous],
  ] as const)("$name, rungs, and the order in which rollouts are carried on", (search, order) => {
    const { state, asked } = run(search, search.init({ ...options, window: 1 }, 1), table, IN_ORDER);
    expect(state.config.rungs).toEqual(rungs);
    expect(asked.map(({ candidate, rung }) => [candidate, rung])).toEqual(order);
    expect(
      asked.every(({ rung, fromSteps, toSteps }) => toSteps === rungs[rung] && fromSteps === (rungs[rung - 1] ?? 0)),
    ).toBe(true);
    expect(state.steps).toBe(asked.reduce((sum, { fromSteps, toSteps }) => sum + toSteps - fromSteps, 0));
  });
});

test("a rollout goes on from the checkpoint of its last rung, which is then released", () => {
  const state = successiveHalving.init({ candidates: 4, factor: 2, maxSteps: 4, window: 1 }, 1);
  const { asked, left } = run(successiveHalving, state, table, IN_ORDER);
  const last = new Map<number, string>();
  for (const { id, candidate, checkpoint } of asked) {
    expect(checkpoint).toBe(last.get(candidate) ?? null);
    last.set(candidate, `${id}`);
  }
  expect([...left].sort()).toEqual([...last.values()].sort());
});

test("a quarter of the steps that all rollouts would take finds the best of 64, where scores do not mislead", () => {
  const best = (candidate: number): number => (candidate * 29) % 64;
  for (const search of searches) {
    const { state } = run(
      search,
      search.init({ candidates: 64, factor: 4, maxSteps: 64, window: 8 }, 1),
      ({ candidate }) => ({ kind: "value", score: best(candidate) }),
      { ...IN_ORDER, workers: 8 },
    );
    expect(search.best(state)).toMatchObject({ score: 63, steps: 64 });
    expect(state.steps).toBeLessThan((64 * 64) / 4);
  }
});

describe.each(searches)("$name, properties", (search) => {
  test("any schedule and restarts, same state as in order, exactly the needed checkpoints are left", () => {
    const options = fc.record({
      candidates: fc.integer({ min: 1, max: 25 }),
      maxSteps: fc.integer({ min: 3, max: 40 }),
      minSteps: fc.integer({ min: 1, max: 3 }),
      factor: fc.constantFrom(2, 3, 2.5),
      window: fc.integer({ min: 1, max: 8 }),
      maxTrials: fc.constantFrom(12, 200),
    });
    const property = fc.property(fc.nat().map(scheduleOf), options, fc.nat(), (schedule, options, seed) => {
      const world: World = ({ id }) => {
        const kind = drawInteger(seed, 10, "kind", id);
        if (kind === 0) return { kind: "infrastructure-failure", reason: "scripted" };
        if (kind === 1) return { kind: "rejected", reason: "scripted" };
        return { kind: "value", score: drawInteger(seed, 9, "score", id), checkpoint: `${id}` };
      };
      const plain = run(search, search.init(options, seed), world, IN_ORDER);
      const other = run(search, search.init(options, seed), world, schedule);
      expect(JSON.stringify(search.serialise(other.state))).toBe(JSON.stringify(search.serialise(plain.state)));
      expect(search.status(other.state).done).toBe(true);
      const held = other.state.candidates.flatMap(({ checkpoint }) => (checkpoint === null ? [] : [checkpoint]));
      expect([...other.left].sort()).toEqual(held.sort());
    });
    fc.assert(property, runs(10));
  });

  test.each<[object, string]>([
    [{ candidates: 3 }, "maxSteps"],
    [{ candidates: 3, maxSteps: 1, minSteps: 2 }, "maxSteps"],
    [{ candidates: 3, maxSteps: 9, factor: 1 }, "factor"],
    [{ candidates: 0, maxSteps: 9 }, "candidates"],
    [{ candidates: 3, maxSteps: 9, unheard: 1 }, "unheard"],
  ])("%j, refused for %s", (options, field) => {
    expect(() => search.init(options as never, 1)).toThrow(SearchError);
    expect(() => search.init(options as never, 1)).toThrow(field);
  });

  test("score that is not a finite number, refused and nothing changed", () => {
    const state = search.init({ candidates: 3, maxSteps: 9 }, 1);
    search.ask(state, 1);
    const before = JSON.stringify(search.serialise(state));
    for (const score of [Number.NaN, Number.NEGATIVE_INFINITY])
      expect(() => search.tell(state, 0, 0, { kind: "value", score })).toThrow("score");
    expect(JSON.stringify(search.serialise(state))).toBe(before);
  });
});

test("successive halving without a number of candidates, refused; asha goes on beginning", () => {
  expect(() => successiveHalving.init({ maxSteps: 9 }, 1)).toThrow("candidates");
  expect(run(asha, asha.init({ maxSteps: 9, maxTrials: 100 }, 1), table, IN_ORDER).asked).toHaveLength(100);
});
