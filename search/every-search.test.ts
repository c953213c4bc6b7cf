import fc from "fast-check";
import { Packr, Unpackr } from "msgpackr";
import { describe, expect, test } from "vitest";
import { SearchError } from "./index.js";
import { ACCIDENT, type Drive, drive } from "./testing/drive.js";
import { type AnyOutcome, type AnyState, EVERY_SEARCH, type EverySearch, type Limits } from "./testing/every-search.js";
import { runs } from "./testing/runs.js";
import { IN_ORDER, type Schedule, scheduleOf } from "./testing/schedule.js";

type AnyTrial = Parameters<EverySearch["withNumber"]>[1];
type World = (trial: AnyTrial) => AnyOutcome;

const LIMITS: Limits = { window: 4, maxAttempts: 2, maxTrials: 40 };
const limits = fc.record({
  window: fc.integer({ min: 1, max: 9 }),
  maxAttempts: fc.integer({ min: 1, max: 3 }),
  maxTrials: fc.integer({ min: 1, max: 50 }),
});
const schedules = fc.nat().map(scheduleOf);
const packr = new Packr({ useRecords: false });
const unpackr = new Unpackr({ useRecords: false });
const copies = fc.constantFrom(
  (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown,
  (value: unknown) => unpackr.unpack(packr.pack(value)) as unknown,
);

function run(every: EverySearch, initial: AnyState, world: World, schedule: Schedule): Drive<AnyState, AnyTrial> {
  const { search, namesOf } = every;
  return drive(search, { initial, outcomeOf: world, accident: ACCIDENT, namesOf }, schedule);
}

function text({ search }: EverySearch, state: AnyState): string {
  return JSON.stringify(search.serialise(state));
}

/** Every number in a value, with its path. */
function* numbers(value: unknown, path = ""): Generator<[path: string, number]> {
  if (typeof value === "number") yield [path, value];
  else if (typeof value === "object" && value !== null)
    for (const [key, child] of Object.entries(value)) yield* numbers(child, `${path}.${key}`);
}

function expectFinite({ search }: EverySearch, state: AnyState): void {
  const seen = [search.serialise(state), search.status(state), search.best?.(state)];
  expect([...numbers(seen)].filter(([, value]) => !Number.isFinite(value))).toEqual([]);
}

function expectRest({ search, underWay, needed }: EverySearch, { state, left }: Drive<AnyState, AnyTrial>): void {
  expect(search.status(state)).toMatchObject({ inFlight: 0, waiting: 0, held: 0, done: true });
  expect(underWay(state).filter((count) => count !== 0)).toEqual([]);
  expect([...left].sort()).toEqual([...needed(state)].sort());
}

describe.each(EVERY_SEARCH)("$name", (every) => {
  const { search, init, outcome, withNumber } = every;

  test("any order and repetition of tells, failures and restarts, same state as in order, and at rest", () => {
    const property = fc.property(limits, schedules, fc.nat(), copies, (limits, schedule, seed, copy) => {
      const world: World = (trial) => outcome(seed, 0.1, trial);
      const plain = run(every, init(limits, seed), world, IN_ORDER);
      const other = run(every, init(limits, seed), world, { ...schedule, copy });
      expect(text(every, other.state)).toBe(text(every, plain.state));
      expectRest(every, other);
    });
    fc.assert(property, runs(5));
  });

  test("serialised and restored before every tell, continues as uninterrupted", () => {
    const property = fc.property(limits, fc.nat(), copies, (limits, seed, copy) => {
      const world: World = (trial) => outcome(seed, 0.1, trial);
      const plain = run(every, init(limits, seed), world, IN_ORDER);
      const other = run(every, init(limits, seed), world, { ...IN_ORDER, workers: 3, restart: 1, copy });
      expect(text(every, other.state)).toBe(text(every, plain.state));
      expect(other.asked).toEqual(plain.asked);
    });
    fc.assert(property, runs(3));
  });

  test("NaN and infinities, refused by the name of the field and nothing changed", () => {
    const state = init(LIMITS, 1);
    const trial = search.ask(state, 1).trials[0] as AnyTrial;
    const before = text(every, state);
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      for (const [field, told] of Object.entries(withNumber(bad, trial))) {
        const tell = (): unknown => search.tell(state, trial.id, trial.attempt, told);
        expect(tell).toThrow(SearchError);
        expect(tell).toThrow(field);
        expect(text(every, state)).toBe(before);
      }
    }
    const [good] = Object.values(withNumber(0.5, trial)) as [AnyOutcome];
    expect(search.tell(state, trial.id, trial.attempt, good).verdict).not.toBe("ignored");
  });

  test("numbers as large as they may be, of both signs, all statistics stay finite and the search ends", () => {
    const { largest } = every;
    const world: World = (trial) => {
      const told = Object.values(withNumber(trial.id % 3 === 0 ? -largest : largest, trial));
      return told[trial.id % told.length] as AnyOutcome;
    };
    const { state } = run(every, init({ ...LIMITS, maxTrials: 60 }, 1), world, { ...IN_ORDER, workers: 3 });
    expectFinite(every, state);
    expect(search.status(state).done).toBe(true);
    if (largest < 1e300) {
      const strict = init(LIMITS, 1);
      const [trial] = search.ask(strict, 1).trials as [AnyTrial];
      for (const told of Object.values(withNumber(1e308, trial)))
        expect(() => search.tell(strict, trial.id, 0, told)).toThrow(SearchError);
    }
  });

  test.each(["infrastructure-failure", "rejected"])(
    "every trial comes to nothing (%s), ends, with an answer",
    (kind) => {
      const drive = run(every, init(LIMITS, 1), () => ({ kind }), { ...IN_ORDER, workers: 4 });
      expectRest(every, drive);
      expectFinite(every, drive.state);
    },
  );

  test("asking ended while trials are under way, their outcomes are still taken, and nothing is asked", () => {
    const state = init(LIMITS, 2);
    const { trials } = search.ask(state, 3);
    search.finish(state);
    expect(search.ask(state, 3).trials).toEqual([]);
    for (const trial of trials.toReversed())
      search.tell(state, trial.id, trial.attempt, Object.values(withNumber(0.25, trial))[0] as AnyOutcome);
    expect(search.status(state)).toMatchObject({ done: true, inFlight: 0, block: "finished" });
  });
});
