/** What the demonstration leaves: the summary for programs, the tables for people, the best trajectory. */

import Table from "cli-table3";

import type { ReplayResult } from "../replay/replay.js";
import type { RunResult } from "../run/run.js";
import type { LatencySummary } from "../scheduler/latency.js";
import type { DemoModule } from "./demo-module.js";
import { number } from "./display.js";
import type { ProbeResult } from "./latency-probe.js";
import { printable } from "./terminal.js";

export interface DemoOutcome {
  readonly explored: RunResult;
  readonly random: RunResult;
  readonly replay: ReplayResult;
  readonly probe: ProbeResult;
}

/** As `--json` and `summary.json` have it. */
export interface DemoSummary {
  readonly seed: number;
  readonly steps: number;
  readonly stepsPerSecond: number;
  readonly goExplore: {
    readonly cells: number;
    readonly rooms: number;
    readonly bestScore: number;
    readonly depth: number;
  };
  readonly random: { readonly cells: number; readonly rooms: number; readonly bestScore: number };
  readonly checkpoints: { readonly taken: number; readonly pruned: number; readonly hot: number };
  readonly latency: Readonly<Record<"fork" | "park" | "exec", LatencySummary>>;
  readonly replay: { readonly steps: number; readonly mismatches: number };
}

export function summarise({ explored, random, replay, probe }: DemoOutcome): DemoSummary {
  const { taken, pruned, hot } = explored.checkpoints;
  const found = ({ summary }: RunResult): { cells: number; rooms: number; bestScore: number } => ({
    cells: summary.cells,
    rooms: summary.landmarks["room"] ?? 0,
    bestScore: summary.bestScore,
  });
  return {
    seed: explored.seed,
    steps: explored.spent.steps,
    stepsPerSecond: round(explored.spent.steps / (explored.spent.searchMs / 1_000)),
    goExplore: { ...found(explored), depth: explored.summary.depth },
    random: found(random),
    checkpoints: { taken, pruned, hot },
    latency: { fork: probe.fork, park: probe.park, exec: probe.exec },
    replay: { steps: replay.steps, mismatches: replay.mismatches.length },
  };
}

export function comparisonTable(summary: DemoSummary): string {
  const { goExplore, random, steps } = summary;
  const table = new Table({ head: ["", "Go-Explore", "random", "times"], style: { head: [], border: [] } });
  const row = (name: string, ours: number, theirs: number): [string, string, string, string] => [
    name,
    number(ours),
    number(theirs),
    theirs > 0 ? (ours / theirs).toFixed(1) : "",
  ];
  table.push(
    row("cells", goExplore.cells, random.cells),
    row("rooms", goExplore.rooms, random.rooms),
    row("best score", goExplore.bestScore, random.bestScore),
    ["steps", number(steps), number(steps), ""],
    ["depth", number(goExplore.depth), "", ""],
  );
  return table.toString();
}

/** Below this Go-Explore has hardly begun to return to what it found, and chance decides which of the two finds more. */
const STEPS_TO_JUDGE = 1_500;

/** What a reader must know who looks at the comparison; empty where it speaks for itself. */
export function comparisonNote({ steps }: Pick<DemoSummary, "steps">): string {
  if (steps >= STEPS_TO_JUDGE) return "";
  return `${number(steps)} steps are too few to judge: chance decides. From about ${number(STEPS_TO_JUDGE)} on (--steps) the two differ.`;
}

export function latencyTable({ explored, probe }: DemoOutcome): string {
  const table = new Table({ head: ["", "n", "p50", "p99"], style: { head: [], border: [] } });
  const row = (name: string, { n, p50_us, p99_us }: LatencySummary): [string, string, string, string] => [
    name,
    number(n),
    n === 0 ? "" : milliseconds(p50_us),
    n === 0 ? "" : milliseconds(p99_us),
  ];
  table.push(
    row("fork, run ahead, to its first reply", probe.fork),
    row("fork, on demand, to its first reply", probe.coldFork),
    row("park", probe.park),
    row("exec of true", probe.exec),
    row("while searching: fork", explored.latency.fork),
    row("while searching: park", explored.latency.park),
    row("while searching: step", explored.latency.step),
    row("while searching: score", explored.latency.score),
  );
  const memory = `One idle child takes ${(probe.childBytes / 2 ** 20).toFixed(2)} MiB of the host, all told.`;
  return `${table.toString()}\n${memory}`;
}

/** The best trajectory, as a person would retell it. */
export function trajectoryText({ explored }: Pick<DemoOutcome, "explored">, { situation }: DemoModule): string {
  const { best, seed } = explored;
  const lines = [`Score ${best.score} after ${best.depth} steps, seed ${seed}`, "", indent(situation(best.root))];
  for (const [index, { action, observation }] of best.trajectory.entries()) {
    lines.push("", `${String(index + 1).padStart(4)}  > ${action}`, indent(situation(observation)));
  }
  return `${printable(lines.join("\n"))}\n`;
}

/** The actions of the best trajectory, wrapped. */
export function trajectoryLine({ explored }: Pick<DemoOutcome, "explored">, columns: number): string {
  if (explored.best.trajectory.length === 0) return "  none: nothing scored more than the start";
  const lines: string[] = [];
  let line = "";
  for (const { action } of explored.best.trajectory) {
    const word = printable(action);
    if (line !== "" && line.length + word.length + 4 > columns) {
      lines.push(`${line},`);
      line = "";
    }
    line = line === "" ? `  ${word}` : `${line}, ${word}`;
  }
  return [...lines, line].join("\n");
}

function indent(text: string): string {
  return text
    .trim()
    .split("\n")
    .map((line) => `      ${line}`.trimEnd())
    .join("\n");
}

function milliseconds(microseconds: number): string {
  return `${(microseconds / 1_000).toFixed(2)} ms`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
