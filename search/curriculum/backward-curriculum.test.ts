import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type BackwardOptions,
  type BackwardOutcome,
  type BackwardTrial,
  backwardCurriculum,
  drawUniform,
  SearchError,
} from "../index.js";
import { ACCIDENT, drive } from "../testing/drive.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, scheduleOf } from "../testing/schedule.js";

/** Ten states of a demonstration of 20 steps that gains 1 at its end. */
const demonstration = Array.from({ length: 10 }, (_, index) => ({
  checkpoint: index === 0 ? null : `c${index}`,
  step: 2 * index,
  gainLeft: 1,
}));
const options: BackwardOptions = { demonstration, steps: 20, judged: 5, moveThreshold: 0.6, spread: 3, window: 1 };

type World = (trial: BackwardTrial) => BackwardOutcome;

function run(own: Partial<BackwardOptions>, world: World, schedule = IN_ORDER) {
  const initial = backwardCurriculum.init({ ...options, ...own }, 7);
  return drive(backwardCurriculum, { initial, outcomeOf: world, accident: ACCIDENT, namesOf: () => [] }, schedule);
}

const perfect: World = ({ target, maxSteps }) => ({ kind: "value", gain: target, steps: maxSteps });

test("policy that always succeeds, every state in turn from the last to the root, 5 rollouts each from the newest", () => {
  const { state, asked } = run({ spread: 1 }, perfect);
  expect(asked.map(({ start }) => start)).toEqual(demonstration.flatMap((_, index) => Array(5).fill(9 - index)));
  expect(backwardCurriculum.status(state)).toMatchObject({ at: -1, done: true });
  expect(asked.at(-1)).toMatchObject({ checkpoint: null, step: 0, target: 1, maxSteps: 30 });
});

test("half of the starts are the newest, the rest spread over it and the two behind it", () => {
  const world: World = (trial) => (trial.start >= 5 ? perfect(trial) : { kind: "rejected", reason: "too hard" });
  const { asked, state } = run({ maxTrials: 2_000, judged: 20, moveThreshold: 0.5 }, world);
  expect(state.at).toBe(4);
  const late = asked.slice(-900).map(({ start }) => start);
  // 600, 150 and 150 expected, standard deviations 14 and 11.
  for (const [start, count] of [
    [4, 600],
    [5, 150],
    [6, 150],
  ] as const)
    expect(Math.abs(late.filter((other) => other === start).length - count)).toBeLessThan(4 * 14);
});

test("success in 3 of 5 moves the start where the threshold is .6, success in 2 of 5 does not", () => {
  const share = (good: number): number => {
    const { state } = run({ maxTrials: 5, spread: 1 }, ({ id }) => ({
      kind: "value",
      gain: id < good ? 1 : 0.9,
      steps: 1,
    }));
    return state.at;
  };
  expect([share(2), share(3)]).toEqual([9, 8]);
});

test("infrastructure failures are no failures of the policy, rejections are", () => {
  const lost = run({ maxTrials: 50, spread: 1, maxAttempts: 1 }, ({ id, ...trial }) =>
    id % 2 === 0 ? { kind: "infrastructure-failure", reason: "host lost" } : perfect({ id, ...trial }),
  );
  expect(lost.state.at).toBe(4);
  const rejected = run({ maxTrials: 50, spread: 1 }, ({ id, ...trial }) =>
    id % 2 === 0 ? { kind: "rejected", reason: "no" } : perfect({ id, ...trial }),
  );
  // Rounds of 5 have 2 and 3 successes in turn.
  expect(rejected.state.at).toBe(4);
});

test("a slower success counts only where score is what matters", () => {
  for (const optimiseScore of [true, false]) {
    const { state } = run({ optimiseScore, maxTrials: 5, spread: 1 }, () => ({ kind: "value", gain: 2, steps: 3 }));
    expect(state.at).toBe(optimiseScore ? 8 : 9);
  }
});

test("any schedule and restarts, same curriculum as in order", () => {
  const property = fc.property(
    fc.nat().map(scheduleOf),
    fc.nat(),
    fc.integer({ min: 1, max: 8 }),
    (schedule, seed, window) => {
      const world: World = ({ id, start }) => {
        const chance = drawUniform(seed, "chance", id);
        if (chance < 0.1) return { kind: "infrastructure-failure", reason: "scripted" };
        if (chance < 0.2) return { kind: "rejected", reason: "scripted" };
        return { kind: "value", gain: chance * (1 + start / 10), steps: 5 };
      };
      const own = { window, maxTrials: 120 };
      const plain = run(own, world);
      const other = run(own, world, schedule);
      expect(JSON.stringify(backwardCurriculum.serialise(other.state))).toBe(
        JSON.stringify(backwardCurriculum.serialise(plain.state)),
      );
      expect(backwardCurriculum.status(other.state).done).toBe(true);
    },
  );
  fc.assert(property, runs(12));
});

describe("what is refused", () => {
  test.each<[object, string]>([
    [{ demonstration: [] }, "demonstration"],
    [{ demonstration: [{ checkpoint: null, step: 20, gainLeft: 0 }] }, "step"],
    [{ demonstration: [...demonstration].reverse() }, "step"],
    [{ demonstration: [{ checkpoint: null, step: 0, gainLeft: Number.NaN }] }, "gainLeft"],
    [{ steps: 0 }, "steps"],
    [{ moveThreshold: 0 }, "moveThreshold"],
    [{ patience: 0.5 }, "patience"],
    [{ unheard: 1 }, "unheard"],
  ])("%j, for %s", (wrong, field) => {
    expect(() => backwardCurriculum.init({ ...options, ...wrong } as never, 1)).toThrow(SearchError);
    expect(() => backwardCurriculum.init({ ...options, ...wrong } as never, 1)).toThrow(field);
  });

  test("gain that is not a finite number, and nothing changed", () => {
    const state = backwardCurriculum.init(options, 1);
    backwardCurriculum.ask(state, 1);
    const before = JSON.stringify(backwardCurriculum.serialise(state));
    expect(() => backwardCurriculum.tell(state, 0, 0, { kind: "value", gain: Number.NaN, steps: 1 })).toThrow("gain");
    expect(JSON.stringify(backwardCurriculum.serialise(state))).toBe(before);
  });
});
