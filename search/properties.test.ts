import fc from "fast-check";
import { Packr, Unpackr } from "msgpackr";
import { describe, expect, test } from "vitest";
import { exportTree, type GoExploreOptions, goExplore, randomRollouts, summarise } from "./index.js";
import { runs } from "./testing/runs.js";
import { IN_ORDER, leftAndHeld, runSchedule, type Schedule, type Script } from "./testing/schedule.js";

const options: fc.Arbitrary<GoExploreOptions> = fc.record({
  root: fc.constant({ cell: "cell 0" }),
  stepsPerTrial: fc.integer({ min: 1, max: 6 }),
  window: fc.integer({ min: 1, max: 9 }),
  optimiseScore: fc.boolean(),
  maxAttempts: fc.integer({ min: 1, max: 3 }),
  maxNodes: fc.oneof(fc.constant(1_000), fc.integer({ min: 2, max: 12 })),
  maxLength: fc.oneof(fc.constant(1_000), fc.integer({ min: 3, max: 10 })),
  maxSteps: fc.integer({ min: 1, max: 150 }),
  resetCellOnUpdate: fc.boolean(),
  countInFlight: fc.boolean(),
  weights: fc.constantFrom(
    {},
    { scoreHigh: 1 },
    { seen: { weight: 1, power: 0.5 }, chosen: { weight: 0, power: 1 } },
    { knowledge: { lowLevel: 0.5, noLower: 1, noHigher: 2 } },
  ),
});
const script: fc.Arbitrary<Script> = fc.record({
  seed: fc.nat(),
  cells: fc.integer({ min: 1, max: 12 }),
  hasKnowledge: fc.boolean(),
});
const schedule: fc.Arbitrary<Schedule> = fc.record({
  seed: fc.nat(),
  workers: fc.integer({ min: 1, max: 10 }),
  failure: fc.constantFrom(0, 0.3),
  repeat: fc.constantFrom(0, 0.5),
  restart: fc.constantFrom(0, 0.2),
});
const seeds = fc.nat();

const settings = fc.record({ options, script, seed: seeds });

describe("go-explore, properties", () => {
  test("outcomes in any order, repeated, stale, after failures and restarts, same state as in order", () => {
    const property = fc.property(settings, schedule, ({ options, script, seed }, schedule) => {
      const plain = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
      const other = runSchedule(goExplore, goExplore.init(options, seed), script, schedule);
      expect(JSON.stringify(exportTree(other.state))).toBe(JSON.stringify(exportTree(plain.state)));
      expect(goExplore.serialise(other.state)).toEqual(goExplore.serialise(plain.state));
    });
    fc.assert(property, runs(12));
  });

  test("state through JSON or MessagePack at any moment, continues as uninterrupted", () => {
    const packr = new Packr({ useRecords: false });
    const unpackr = new Unpackr({ useRecords: false });
    const copies = [
      (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown,
      (value: unknown) => unpackr.unpack(packr.pack(value)) as unknown,
    ];
    const property = fc.property(
      settings,
      schedule,
      fc.constantFrom(...copies),
      ({ options, script, seed }, schedule, copy) => {
        const plain = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
        const other = runSchedule(goExplore, goExplore.init(options, seed), script, {
          ...schedule,
          restart: 0.5,
          copy,
        });
        expect(JSON.stringify(goExplore.serialise(other.state))).toBe(JSON.stringify(goExplore.serialise(plain.state)));
      },
    );
    fc.assert(property, runs(12));
  });

  test("search at rest, nothing in flight, and exactly the checkpoints of the archive are left", () => {
    const property = fc.property(settings, schedule, ({ options, script, seed }, schedule) => {
      const result = runSchedule(goExplore, goExplore.init(options, seed), script, schedule);
      const { archive, book } = result.state;
      const [left, held] = leftAndHeld(result);
      expect(left).toEqual(held);
      expect(goExplore.status(result.state)).toMatchObject({ inFlight: 0, waiting: 0, held: 0, done: true });
      expect(archive.cells.inFlight.toArray().every((count) => count === 0)).toBe(true);
      expect(result.state.plannedSteps).toBe(0);
      expect(book.open).toHaveLength(0);
      const archived = exportTree(result.state).nodes.filter(
        (node) => node.archived && node.node > 0 && node.cell !== null,
      );
      expect(held).toHaveLength(archived.length);
    });
    fc.assert(property, runs(12));
  });

  test("tree, every path has the length and the trial order of its node, caps hold", () => {
    const property = fc.property(settings, ({ options, script, seed }) => {
      const { state } = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
      const tree = exportTree(state);
      expect(tree.nodes.length).toBeLessThanOrEqual(state.config.maxNodes);
      expect(tree.steps).toBeLessThanOrEqual(state.config.maxSteps);
      for (const node of tree.nodes) {
        const path = goExplore.path(state, node.node);
        expect(path).toHaveLength(node.length);
        expect(node.length).toBeLessThanOrEqual(state.config.maxLength);
        expect(path.at(-1)?.node ?? 0).toBe(node.node);
        if (node.parent !== null) expect(tree.nodes[node.parent]?.trial ?? -1).toBeLessThanOrEqual(node.trial ?? -1);
      }
      if (!state.config.resetCellOnUpdate)
        expect(tree.cells.reduce((sum, { actions }) => sum + actions, 0)).toBe(tree.steps);
    });
    fc.assert(property, runs(12));
  });

  test("weights kept up to date one by one, equal those that a restored archive computes anew", () => {
    const property = fc.property(settings, ({ options, script, seed }) => {
      const { state } = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
      const weights = (one: typeof state) => exportTree(one).cells.map(({ weight }) => weight);
      expect(weights(state)).toEqual(weights(goExplore.restore(goExplore.serialise(state))));
    });
    fc.assert(property, runs(30));
  });

  test("archive, kept state of a cell, no refused or replaced node of it was better", () => {
    const property = fc.property(settings, ({ options, script, seed }) => {
      const { state } = runSchedule(goExplore, goExplore.init(options, seed), script, IN_ORDER);
      const { nodes } = exportTree(state);
      for (const kept of nodes.filter(({ archived }) => archived)) {
        for (const other of nodes.filter(({ cell, node }) => cell === kept.cell && node !== kept.node)) {
          const isBetter = options.optimiseScore
            ? other.score > kept.score || (other.score === kept.score && other.length <= kept.length)
            : other.length <= kept.length;
          expect(isBetter).toBe(false);
        }
      }
    });
    fc.assert(property, runs(12));
  });

  test("rewards of any finite size, no weight and no statistic is anything but finite", () => {
    const scales = fc.constantFrom(1e-308, 1, 1e6, 4e306);
    const property = fc.property(settings, scales, ({ options, script, seed }, scale) => {
      const { state } = runSchedule(goExplore, goExplore.init(options, seed), { ...script, scale }, IN_ORDER);
      const text = JSON.stringify(exportTree(state));
      expect(text).not.toContain('"score":null');
      expect(text).not.toContain('"weight":null');
      expect(Number.isFinite(state.archive.totalWeight)).toBe(true);
    });
    fc.assert(property, runs(12));
  });
});

describe("random rollouts, properties", () => {
  test("any schedule, same state as in order, and every trial starts at the root", () => {
    const property = fc.property(script, seeds, schedule, (script, seed, schedule) => {
      const options = { root: { cell: "cell 0" }, stepsPerTrial: 6, maxSteps: 100 };
      const plain = runSchedule(randomRollouts, randomRollouts.init(options, seed), script, IN_ORDER);
      const other = runSchedule(randomRollouts, randomRollouts.init(options, seed), script, schedule);
      expect(JSON.stringify(exportTree(other.state))).toBe(JSON.stringify(exportTree(plain.state)));
      for (const node of exportTree(plain.state).nodes) {
        const path = randomRollouts.path(plain.state, node.node);
        expect(path.length).toBeLessThanOrEqual(6);
      }
      expect(summarise(plain.state).archived).toBe(summarise(plain.state).cells);
    });
    fc.assert(property, runs(12));
  });
});
