import { describe, expect, it } from "vitest";

import type { RunResult } from "../run/run.js";
import {
  comparisonNote,
  comparisonTable,
  type DemoOutcome,
  latencyTable,
  summarise,
  trajectoryLine,
  trajectoryText,
} from "./demo-report.js";

const latency = { n: 50, p50_us: 4_800, p99_us: 9_100 };
const step = { trial: 0, index: 0, digest: "", cell: "", reward: 0 };

function result(cells: number, rooms: number, bestScore: number): RunResult {
  return {
    best: {
      node: 1,
      cell: "pit",
      score: bestScore,
      depth: 2,
      root: { text: "At the road." },
      trajectory: [
        { ...step, action: "enter", observation: { text: "Inside." } },
        { ...step, action: "take \u001b[2Jlamp", observation: { text: "OK." } },
      ],
    },
    tree: {},
    summary: {
      cells,
      archived: cells,
      nodes: cells,
      bestScore,
      depth: 9,
      steps: 3_000,
      trials: 150,
      landmarks: { room: rooms },
    },
    ended: "steps",
    spent: { steps: 3_000, trials: 150, replayedSteps: 0, forks: 700, searchMs: 150_000, wallMs: 160_000 },
    checkpoints: { taken: 400, pruned: 100, evicted: 0, hot: 300 },
    latency: { fork: latency, park: latency, step: latency, score: latency },
    seed: 7,
  };
}

const outcome: DemoOutcome = {
  explored: result(300, 30, 47),
  random: result(60, 10, 32),
  replay: { steps: 2, mismatches: [] },
  probe: { fork: latency, coldFork: latency, park: latency, exec: latency, childBytes: 2.5 * 2 ** 20 },
};

const module = {
  title: "Cave",
  drawMap: (): string => "<svg/>",
  situation: (observation: unknown): string => (observation as { text: string }).text,
};

describe("the report of the demo", () => {
  it("has exactly the fields that programs were promised", () => {
    expect(summarise(outcome)).toEqual({
      seed: 7,
      steps: 3_000,
      stepsPerSecond: 20,
      goExplore: { cells: 300, rooms: 30, bestScore: 47, depth: 9 },
      random: { cells: 60, rooms: 10, bestScore: 32 },
      checkpoints: { taken: 400, pruned: 100, hot: 300 },
      latency: { fork: latency, park: latency, exec: latency },
      replay: { steps: 2, mismatches: 0 },
    });
  });

  it("compares both searches, with how many times more", () => {
    const table = comparisonTable(summarise(outcome));
    expect(table).toMatch(/cells\s+│ 300\s+│ 60\s+│ 5\.0/);
    expect(table).toMatch(/steps\s+│ 3,000\s+│ 3,000/);
  });

  it("says of a short run that nothing can be told from it", () => {
    expect(comparisonNote({ steps: 400 })).toContain("400 steps are too few to judge");
    expect(comparisonNote({ steps: 3_000 })).toBe("");
  });

  it("shows latencies in milliseconds, and the memory of a child", () => {
    const table = latencyTable(outcome);
    expect(table).toMatch(/fork, run ahead.*│ 4\.80 ms │ 9\.10 ms/);
    expect(table).toContain("2.50 MiB");
  });

  it("retells the best trajectory without anything that a terminal would obey", () => {
    const text = trajectoryText(outcome, module);
    expect(text).toContain("   1  > enter\n      Inside.");
    expect(text + trajectoryLine(outcome, 80)).not.toContain("\u001b");
  });

  it("says so where nothing scored more than the start", () => {
    const explored = { ...outcome.explored, best: { ...outcome.explored.best, trajectory: [] } };
    expect(trajectoryLine({ explored }, 80)).toBe("  none: nothing scored more than the start");
  });
});
