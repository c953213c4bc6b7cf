import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ArchiveReplica,
  type ArchiveState,
  adaptiveBudget,
  archiveDelta,
  archiveSamples,
  drawInteger,
  exportTree,
  goExplore,
  redivide,
  SearchError,
  searchCells,
  type Visit,
} from "./index.js";
import { runs } from "./testing/runs.js";
import { IN_ORDER, leftAndHeld, runSchedule, type Script, scheduleOf } from "./testing/schedule.js";

/** An archive at rest: the root at 0, and one trial a list, each step with its place, score and checkpoint. */
function archiveOf(...trials: readonly (readonly (readonly [place: number, score: number])[])[]): ArchiveState {
  const state = goExplore.init({ root: { cell: "0", checkpoint: "root" }, window: 1, maxTrials: trials.length }, 1);
  for (const steps of trials) {
    const { id } = goExplore.ask(state, 1).trials[0] ?? { id: -1 };
    const visits = steps.map(([place, score], step): Visit => {
      const candidate = { checkpoint: `${id}/${step}` };
      return { action: "go", reward: 0, terminated: false, cell: `${place}`, score, candidate };
    });
    goExplore.tell(state, id, 0, { kind: "value", visits });
  }
  return state;
}

const tens = (sample: string): string => `tens ${Math.floor(Number(sample) / 10)}`;

describe("archive divided anew", () => {
  test("cells that become one, the best state stays, counters add up, the others' checkpoints are released", () => {
    const before = archiveOf(
      [
        [11, 1],
        [12, 3],
        [21, 2],
      ],
      [[13, 3]],
    );
    const counts = exportTree(before).cells.map(({ cell, seen, actions, chosen }) => [cell, seen, actions, chosen]);
    const { state, changes } = redivide(before, tens);
    const sum = (field: 1 | 2 | 3): number =>
      counts
        .filter(([cell]) => ["11", "12", "13"].includes(cell as string))
        .reduce((all, row) => all + (row[field] as number), 0);
    const { cells, nodes } = exportTree(state);
    // Node 4, the 13 of the second trial, has the score of node 2 and is nearer to the root.
    expect(nodes[4]?.length).toBe(1);
    expect(cells.map(({ cell, node }) => [cell, node])).toEqual([
      ["tens 0", 0],
      ["tens 1", 4],
      ["tens 2", 3],
    ]);
    expect(cells[1]).toMatchObject({ seen: sum(1), actions: sum(2), chosen: sum(3), foundTrial: 0, foundStep: 1 });
    expect(nodes.filter(({ archived }) => archived)).toHaveLength(3);
    expect(nodes.map(({ score }) => score)).toEqual(exportTree(before).nodes.map(({ score }) => score));
    expect(changes.released).toEqual(["0/0", "0/1"]);
  });

  test("divided twice, the second time by what the first cells were computed from", () => {
    const once = redivide(
      archiveOf([
        [11, 1],
        [25, 2],
        [38, 3],
      ]),
      tens,
    ).state;
    const twice = redivide(once, (sample) => (Number(sample) % 2 === 0 ? "even" : "odd")).state;
    expect(exportTree(twice).cells.map(({ cell, node }) => [cell, node])).toEqual([
      ["even", 3],
      ["odd", 2],
    ]);
    expect(archiveSamples(twice)).toEqual(["0", "11", "25", "38"]);
  });

  test("by the entropy objective: a candidate with about as many cells as are wanted, the same each time", () => {
    const state = archiveOf(Array.from({ length: 80 }, (_, index) => [index + 1, 0] as const));
    const choose = () =>
      searchCells(
        {
          samples: archiveSamples(state),
          candidate: (seed, index) => 1 + drawInteger(seed, 40, "width", index),
          cellOf: (width, sample) => `${Math.floor(Number(sample) / width)}`,
          iterations: 100,
        },
        3,
      );
    const { parameters: width, cells } = choose();
    expect(choose()).toEqual(choose());
    const divided = redivide(state, (sample) => `${Math.floor(Number(sample) / width)}`).state;
    expect(exportTree(divided).cells).toHaveLength(cells);
    // 81 samples, an eighth of them: 10 cells are wanted.
    expect(Math.abs(cells - 10)).toBeLessThanOrEqual(1);
  });

  test("trials open, another search, or cells that are no strings: refused, nothing changed", () => {
    const state = goExplore.init({ root: { cell: "0" } }, 1);
    goExplore.ask(state, 1);
    expect(() => redivide(state, tens)).toThrow("no trial open");
    expect(() => redivide(adaptiveBudget.init({ root: { cell: "0" } }, 1), tens)).toThrow(SearchError);
    expect(() => redivide(archiveOf([[1, 1]]), () => 7 as never)).toThrow("cellOf");
  });

  test("any schedule before and after, restarts between: same state as in order, needed checkpoints are left, replicas agree", () => {
    const group = (name: string): string => `group ${Number(name.split(" ")[1]) % 3}`;
    const property = fc.property(
      fc.nat().map(scheduleOf),
      fc.nat(),
      fc.integer({ min: 1, max: 9 }),
      (schedule, seed, cells) => {
        const script: Script = { seed, cells };
        const options = { root: { cell: "cell 0" }, stepsPerTrial: 6, maxTrials: 20, window: 4 };
        const inTwo = (order: typeof schedule) => {
          const first = runSchedule(goExplore, goExplore.init(options, seed), script, order);
          const { state, changes } = redivide(first.state, group);
          const left = new Set([...first.left].filter((name) => !changes.released.includes(name)));
          const saved = goExplore.serialise(state);
          const more = goExplore.restore({ ...saved, config: { ...saved.config, maxTrials: 40 } });
          const replica = new ArchiveReplica();
          replica.apply(archiveDelta(more));
          for (const { cell, node } of exportTree(more).cells) {
            if (cell === null || node === null) continue;
            const { score, length } = more.archive.view(node);
            const judge = replica.at({ version: more.book.merged });
            expect(judge.judge({ cell, score, length })).toBe("pass");
            expect(judge.judge({ cell, score: score + 1, length })).toBe("keep");
          }
          const second = runSchedule(goExplore, more, { ...script, cellOf: group }, order);
          return { state: second.state, left: new Set([...left, ...second.left]) };
        };
        const plain = inTwo(IN_ORDER);
        const other = inTwo(schedule);
        expect(JSON.stringify(exportTree(other.state))).toBe(JSON.stringify(exportTree(plain.state)));
        const [left, held] = leftAndHeld(other);
        expect(held.filter((name) => !left.includes(name))).toEqual([]);
      },
    );
    fc.assert(property, runs(12));
  });
});
