/** How a run goes, on a terminal in place, elsewhere as a line now and then. */

import { createLogUpdate } from "log-update";

import type { Progress } from "../run/progress.js";
import { printable, type Terminal } from "./terminal.js";

export interface Display {
  update(progress: Progress): void;
  /** Leaves the last state on the screen. */
  end(): void;
}

export interface DisplayOptions {
  readonly title: string;
  /** What a reader would want to see of an observation. */
  readonly situation: (observation: Progress["bestObservation"]) => string;
}

/** Between two lines where the output is not a terminal. */
const LINE_EVERY_MS = 5_000;
/** Lines of the best situation that are shown. */
const SITUATION_LINES = 4;

export function createDisplay(terminal: Terminal, options: DisplayOptions): Display {
  return terminal.isInteractive ? new LiveDisplay(terminal, options) : new LineDisplay(terminal, options);
}

class LiveDisplay implements Display {
  readonly #terminal: Terminal;
  readonly #options: DisplayOptions;
  readonly #draw = createLogUpdate(process.stderr);

  constructor(terminal: Terminal, options: DisplayOptions) {
    this.#terminal = terminal;
    this.#options = options;
  }

  update(progress: Progress): void {
    this.#draw(progressBlock(progress, this.#options, this.#terminal.columns).join("\n"));
  }

  end(): void {
    this.#draw.done();
  }
}

class LineDisplay implements Display {
  readonly #terminal: Terminal;
  readonly #options: DisplayOptions;
  #shownAt = Number.NEGATIVE_INFINITY;
  #last: Progress | undefined;

  constructor(terminal: Terminal, options: DisplayOptions) {
    this.#terminal = terminal;
    this.#options = options;
    terminal.log(options.title);
  }

  update(progress: Progress): void {
    this.#last = progress;
    if (progress.elapsedMs - this.#shownAt < LINE_EVERY_MS) return;
    this.#show(progress);
  }

  end(): void {
    if (this.#last !== undefined && this.#last.elapsedMs !== this.#shownAt) this.#show(this.#last);
  }

  #show(progress: Progress): void {
    this.#shownAt = progress.elapsedMs;
    this.#terminal.log(`  ${figures(progress).join(" · ")} · ${timeLine(progress)}`);
    const [first] = situationLines(progress, this.#options, 100);
    if (first !== undefined) this.#terminal.log(`    best: ${first}`);
  }
}

/** The lines of the live display, none longer than `columns`. */
export function progressBlock(progress: Progress, options: DisplayOptions, columns: number): readonly string[] {
  const [found = "", work = "", machine = ""] = figures(progress);
  const situation = situationLines(progress, options, columns - 4).map((line) => `  | ${line}`);
  const lines = [options.title, `  ${found}`, `  ${work}`, `  ${machine}`, `  ${timeLine(progress)}`, ...situation];
  return lines.map((line) => line.slice(0, columns - 1));
}

function figures(progress: Progress): readonly string[] {
  const { cells, bestScore, depth, landmarks, steps, forks, sandboxes, checkpoints } = progress;
  const marks = Object.entries(landmarks).map(([name, count]) => `${name}s ${number(count)}`);
  const evicted = checkpoints.evicted === 0 ? "" : `, ${number(checkpoints.evicted)} evicted`;
  return [
    [`cells ${number(cells)}`, ...marks, `best score ${number(bestScore)}`, `depth ${number(depth)}`].join("  "),
    `steps ${number(steps)} (${rate(progress.stepsPerSecond)})  forks ${number(forks)} (${rate(progress.forksPerSecond)})`,
    `sandboxes ${sandboxes}  checkpoints ${number(checkpoints.hot)} hot, ${number(checkpoints.pruned)} pruned${evicted}`,
  ];
}

function timeLine({ elapsedMs, remainingMs }: Progress): string {
  const left = remainingMs === null ? "" : `, about ${clock(remainingMs)} left`;
  return `${clock(elapsedMs)} elapsed${left}`;
}

function situationLines(progress: Progress, options: DisplayOptions, columns: number): readonly string[] {
  const text = printable(options.situation(progress.bestObservation));
  return text
    .split("\n")
    .map((line) => line.trim().slice(0, columns))
    .filter((line) => line !== "")
    .slice(0, SITUATION_LINES);
}

export function clock(milliseconds: number): string {
  const seconds = Math.round(milliseconds / 1_000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** How long something has been, in one unit: people compare these. */
export function age(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} days`;
}

export function mebibytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

export function number(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 2 });
}

function rate(perSecond: number): string {
  return `${perSecond.toFixed(1)}/s`;
}
