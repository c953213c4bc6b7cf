import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  drawInteger,
  type MapElitesOptions,
  mapElites,
  type Placement,
  type PopulationOutcome,
  type PopulationState,
  type PopulationTrial,
  SearchError,
} from "../index.js";
import { ACCIDENT, type Drive, drive } from "../testing/drive.js";
import { runs } from "../testing/runs.js";
import { IN_ORDER, type Schedule, scheduleOf } from "../testing/schedule.js";

interface Golden {
  readonly runs: readonly {
    readonly options: MapElitesOptions;
    readonly steps: readonly {
      readonly cell: string;
      readonly objective: number;
      readonly placement: Placement;
      readonly value: number;
    }[];
  }[];
}

type World = (trial: PopulationTrial) => PopulationOutcome;

const golden = JSON.parse(readFileSync(new URL("../golden/population.json", import.meta.url), "utf8")) as Golden;

function run(initial: PopulationState, world: World, schedule: Schedule): Drive<PopulationState, PopulationTrial> {
  const namesOf = (outcome: PopulationOutcome) => (outcome.kind === "value" ? [outcome.content] : []);
  return drive(mapElites, { initial, outcomeOf: world, accident: ACCIDENT, namesOf }, schedule);
}

function scripted(seed: number): World {
  return ({ id }) => {
    const pick = (what: string, below: number): number => drawInteger(seed, below, what, id);
    const kind = pick("kind", 12);
    if (kind === 0) return { kind: "infrastructure-failure", reason: "scripted" };
    if (kind === 1) return { kind: "rejected", reason: "scripted" };
    return {
      kind: "value",
      content: `text ${pick("text", 40)}`,
      objective: pick("objective", 30),
      cell: `${pick("cell", 6)}`,
    };
  };
}

test.each(golden.runs)(
  "archive, $options, placement and value of every solution as in the golden file",
  ({ options, steps }) => {
    const state = mapElites.init({ ...options, window: 1 }, 1);
    for (const [index, { cell, objective, placement, value }] of steps.entries()) {
      const [trial] = mapElites.ask(state, 1).trials;
      const outcome: PopulationOutcome = { kind: "value", content: `${index}`, objective, cell };
      const told = mapElites.tell(state, trial?.id ?? -1, 0, outcome);
      // With a window of 1 a result is merged when it is told.
      expect(told.changes.placed).toMatchObject([{ placement, byMigration: false }]);
      expect(told.changes.placed[0]?.value).toBeCloseTo(value, 12);
    }
  },
);

describe("map-elites, parents and islands", () => {
  const grow: World = ({ id, parent }) => {
    return { kind: "value", content: `${parent?.content ?? ""}${id % 10}`, objective: id, cell: `${id % 7}` };
  };

  test("first trials have no parent, later ones an elite of their own island", () => {
    const state = mapElites.init(
      { islands: 3, initial: 2, migrateEvery: 1_000, inspirations: 2, window: 1, maxTrials: 60 },
      1,
    );
    for (let id = 0; id < 60; id += 1) {
      const [trial] = mapElites.ask(state, 1).trials as [PopulationTrial];
      expect(trial.island).toBe(id % 3);
      const own = mapElites
        .elites(state)
        .filter(({ island }) => island === trial.island)
        .map((elite) => elite.id);
      if (id < 6) expect(trial.parent).toBeNull();
      else expect(own).toContain(trial.parent?.id);
      const shown = trial.inspirations.map((solution) => solution.id);
      expect(shown.every((one) => own.includes(one) && one !== trial.parent?.id)).toBe(true);
      mapElites.tell(state, trial.id, 0, grow(trial));
    }
    const islands = mapElites.elites(state).map(({ island }) => island);
    for (const island of [0, 1, 2]) expect(islands.filter((other) => other === island)).toHaveLength(7);
  });

  test("migration, the best tenth of each island, rounded up, is offered to the next one", () => {
    const state = mapElites.init({ islands: 2, migrateEvery: 8, migrationRate: 0.25, window: 1, maxTrials: 8 }, 1);
    const placed: string[] = [];
    for (let id = 0; id < 8; id += 1) {
      const [trial] = mapElites.ask(state, 1).trials as [PopulationTrial];
      const outcome: PopulationOutcome = {
        kind: "value",
        content: `${id}`,
        objective: id,
        cell: `${Math.floor(id / 2)}`,
      };
      for (const one of mapElites.tell(state, trial.id, 0, outcome).changes.placed)
        if (one.byMigration) placed.push(`${one.solution.content} to ${one.island}: ${one.placement}`);
    }
    expect(placed).toEqual(["6 to 1: refused", "7 to 0: improved"]);
    expect(mapElites.best(state)).toMatchObject({ content: "7", objective: 7 });
  });

  test("parents of one island, drawn uniformly from its cells", () => {
    const state = mapElites.init({ initial: 4, window: 1, maxTrials: 1_604 }, 1);
    const counts = new Map<string, number>();
    for (let id = 0; id < 1_604; id += 1) {
      const [trial] = mapElites.ask(state, 1).trials as [PopulationTrial];
      if (trial.parent !== null) counts.set(trial.parent.cell, (counts.get(trial.parent.cell) ?? 0) + 1);
      mapElites.tell(state, trial.id, 0, { kind: "value", content: `${id}`, objective: 0, cell: `${id % 4}` });
    }
    // 400 expected, standard deviation 17.
    for (const count of counts.values()) expect(Math.abs(count - 400)).toBeLessThan(4 * 17);
  });
});

test("any schedule and restarts, same population as in order, exactly what is needed is left", () => {
  const options = fc.record({
    islands: fc.integer({ min: 1, max: 4 }),
    migrateEvery: fc.integer({ min: 1, max: 20 }),
    migrationRate: fc.constantFrom(0, 0.1, 1),
    inspirations: fc.integer({ min: 0, max: 3 }),
    initial: fc.integer({ min: 1, max: 5 }),
    window: fc.integer({ min: 1, max: 8 }),
    maxTrials: fc.integer({ min: 1, max: 80 }),
    learningRate: fc.constantFrom(1, 0.3),
    thresholdMin: fc.constant(2),
  });
  const property = fc.property(fc.nat().map(scheduleOf), options, fc.nat(), (schedule, options, seed) => {
    const plain = run(mapElites.init(options, seed), scripted(seed), IN_ORDER);
    const other = run(mapElites.init(options, seed), scripted(seed), schedule);
    expect(JSON.stringify(mapElites.serialise(other.state))).toBe(JSON.stringify(mapElites.serialise(plain.state)));
    expect(mapElites.status(other.state)).toMatchObject({ inFlight: 0, waiting: 0, held: 0, done: true });
    const needed = new Set(mapElites.elites(other.state).map(({ content }) => content));
    const best = mapElites.best(other.state);
    if (best !== null) needed.add(best.content);
    expect([...other.left].sort()).toEqual([...needed].sort());
  });
  fc.assert(property, runs(12));
});

test.each<[object, string]>([
  [{ learningRate: 0.5 }, "thresholdMin"],
  [{ learningRate: 2, thresholdMin: 0 }, "learningRate"],
  [{ thresholdMin: Number.POSITIVE_INFINITY }, "thresholdMin"],
  [{ islands: 0 }, "islands"],
  [{ inspirations: -1 }, "inspirations"],
  [{ migrationRate: 1.5 }, "migrationRate"],
  [{ unheard: 1 }, "unheard"],
])("%j, refused for %s", (options, field) => {
  expect(() => mapElites.init(options, 1)).toThrow(SearchError);
  expect(() => mapElites.init(options, 1)).toThrow(field);
});

test("objective that is not a finite number, refused and nothing changed; ±1e308 are taken", () => {
  const state = mapElites.init({ thresholdMin: -1e308, learningRate: 0.5, window: 2 }, 1);
  const { trials } = mapElites.ask(state, 2);
  const before = JSON.stringify(mapElites.serialise(state));
  for (const objective of [Number.NaN, Number.POSITIVE_INFINITY])
    expect(() => mapElites.tell(state, 0, 0, { kind: "value", content: "x", objective, cell: "c" })).toThrow(
      "objective",
    );
  expect(JSON.stringify(mapElites.serialise(state))).toBe(before);
  for (const { id } of trials)
    mapElites.tell(state, id, 0, { kind: "value", content: `${id}`, objective: 1e308, cell: "c" });
  mapElites.finish(state);
  expect(mapElites.elites(state).every(({ threshold }) => Number.isFinite(threshold))).toBe(true);
});
