import { describe, expect, test } from "vitest";
import { ArchiveReplica, type ArchiveState, archiveDelta, exportTree, goExplore, randomRollouts } from "./index.js";
import { corridor } from "./testing/maze.js";
import { MazeRunner, runSearch, type World } from "./testing/run.js";

const root = { cell: "R" };

function tellCell(state: ArchiveState, id: number, cell: string, score: number): void {
  goExplore.ask(state, 1);
  const visit = { action: "go", reward: 0, cell, terminated: false, score, candidate: { checkpoint: `c${id}` } };
  goExplore.tell(state, id, 0, { kind: "value", visits: [visit] });
}

describe("judging candidates", () => {
  test("unknown cell keep; known cell by score, then by length; unknown score need-score", () => {
    const state = goExplore.init({ root, window: 1 }, 1);
    tellCell(state, 0, "A", 2);
    const replica = new ArchiveReplica();
    replica.apply(archiveDelta(state));
    const judge = replica.at({ version: 1 });
    expect(judge.judge({ cell: "B", length: 9 })).toBe("keep");
    expect(judge.judge({ cell: "A", length: 1 })).toBe("need-score");
    expect(judge.judge({ cell: "A", length: 9, score: 3 })).toBe("keep");
    expect(judge.judge({ cell: "A", length: 1, score: 2 })).toBe("pass");
    expect(judge.judge({ cell: "A", length: 0, score: 2 })).toBe("keep");
    expect(judge.judge({ cell: "A", length: 0, score: 1 })).toBe("pass");
    judge.kept("B", { score: 0, length: 9 });
    expect(judge.judge({ cell: "B", length: 9, score: 0 })).toBe("pass");
    expect(replica.at({ version: 1 }).judge({ cell: "B", length: 9 })).toBe("keep");
  });

  test("optimiseScore false, by length alone", () => {
    const state = goExplore.init({ root, window: 1, optimiseScore: false }, 1);
    const replica = new ArchiveReplica();
    replica.apply(archiveDelta(state));
    const judge = replica.at({ version: 0 });
    expect(judge.judge({ cell: "R", length: 1, score: 99 })).toBe("pass");
    expect(judge.judge({ cell: "A", length: 1 })).toBe("keep");
  });

  test("random rollouts, nothing is worth a checkpoint", () => {
    const replica = new ArchiveReplica();
    replica.apply(archiveDelta(randomRollouts.init({ root }, 1)));
    expect(replica.at({ version: 0 }).judge({ cell: "new", length: 1 })).toBe("pass");
  });

  test("older version, judged by what was known then; deltas overlap, nothing counts twice", () => {
    const state = goExplore.init({ root, window: 1 }, 1);
    const replica = new ArchiveReplica();
    replica.apply(archiveDelta(state));
    tellCell(state, 0, "A", 1);
    replica.apply(archiveDelta(state, replica.version));
    tellCell(state, 1, "A", 5);
    const late = archiveDelta(state, 1);
    replica.apply(late);
    replica.apply(archiveDelta(state));
    replica.apply(late);
    const offer = { cell: "A", length: 5, score: 3 };
    expect([0, 1, 2].map((version) => replica.at({ version }).judge(offer))).toEqual(["keep", "keep", "pass"]);
    expect(archiveDelta(state).entries).toEqual([
      [0, "R", 0, 0],
      [1, "A", 1, 1],
      [2, "A", 5, expect.any(Number)],
    ]);
    expect(archiveDelta(state, 1).entries).toEqual([[2, "A", 5, expect.any(Number)]]);
    expect(archiveDelta(state, 2).entries).toEqual([]);
  });

  test("checkpoints only where the judge says keep, same tree as with one at every step", () => {
    const world: World = { maze: corridor(5, 8), score: ({ x, y }, length) => ((x * 7 + y * 3 + length) % 5) - 2 };
    const trees = [false, true].map((keepsAll) => {
      const state = goExplore.init({ root: { cell: "0,0" }, stepsPerTrial: 6, maxSteps: 2_000 }, 2);
      const runner = new MazeRunner(world, { keepsAll });
      runSearch(goExplore, state, { world, workers: 4 }, runner);
      return { tree: JSON.stringify(exportTree(state)), made: runner.made };
    });
    expect(trees[0]?.tree).toBe(trees[1]?.tree);
    expect(trees[0]?.made).toBeLessThan((trees[1]?.made ?? 0) / 3);
  });
});
