import { describe, expect, it } from "vitest";

import type { Progress } from "../run/progress.js";
import { clock, createDisplay, progressBlock } from "./display.js";
import type { Terminal } from "./terminal.js";

const progress: Progress = {
  cells: 1_234,
  bestScore: 47,
  depth: 118,
  landmarks: { room: 31 },
  trials: 60,
  steps: 2_345,
  stepsPerSecond: 17.26,
  forks: 612,
  forksPerSecond: 8.1,
  sandboxes: 5,
  checkpoints: { taken: 300, pruned: 57, evicted: 0, hot: 243 },
  elapsedMs: 72_000,
  remainingMs: 100_400,
  bestObservation: { text: "You are in a \u001b[31msplendid\u001b[0m chamber\nthirty feet high." },
};

const options = {
  title: "Colossal Cave",
  situation: (observation: Progress["bestObservation"]): string => (observation as { text: string }).text,
};

describe("the progress display", () => {
  it("says all that a watcher wants to know", () => {
    expect(progressBlock(progress, options, 100)).toEqual([
      "Colossal Cave",
      "  cells 1,234  rooms 31  best score 47  depth 118",
      "  steps 2,345 (17.3/s)  forks 612 (8.1/s)",
      "  sandboxes 5  checkpoints 243 hot, 57 pruned",
      "  1:12 elapsed, about 1:40 left",
      "  | You are in a [31msplendid[0m chamber",
      "  | thirty feet high.",
    ]);
  });

  it("never writes longer lines than the terminal has columns", () => {
    const lines = progressBlock(progress, options, 30);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(30);
  });

  it("writes a line every five seconds where there is no terminal, and one at the end", () => {
    const logged: string[] = [];
    const log = (text: string): void => void logged.push(text);
    const terminal: Terminal = { print: log, log, isInteractive: false, columns: 80 };
    const display = createDisplay(terminal, options);
    for (const elapsedMs of [500, 1_000, 4_000, 5_500, 6_000]) display.update({ ...progress, elapsedMs });
    display.end();
    const lines = logged.filter((line) => line.includes("elapsed"));
    expect(lines.map((line) => /(\d:\d\d) elapsed/.exec(line)?.[1])).toEqual(["0:01", "0:06", "0:06"]);
  });

  it("shows times as minutes and seconds", () => {
    expect(clock(3_599_999)).toBe("60:00");
    expect(clock(65_000)).toBe("1:05");
  });
});
