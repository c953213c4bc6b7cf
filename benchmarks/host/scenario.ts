/** What one scenario of the benchmark is. */

import type { Host, Image, Stages } from "../../index.js";

/** In the unit of its name, see `unitOf`; with the stages of the operation where it has any. */
export type Record = (name: string, value: number, stages?: Stages) => void;

export interface Bench {
  readonly host: Host;
  readonly image: Image;
  readonly record: Record;
  readonly signal: AbortSignal;
  /** Which round this is, below 0 while everything warms up, and how many there are. */
  readonly round: number;
  readonly rounds: number;
}

export interface Scenario {
  /** Names that `run` records. */
  readonly names: readonly string[];
  /** What a reader should know of it, in one line. */
  readonly about: string;
  /** One in so many rounds: what takes seconds is measured less often. */
  readonly every: number;
  readonly run: (bench: Bench) => Promise<void>;
}

/** For what is measured once a run. */
export const ONCE = Number.MAX_SAFE_INTEGER;

const COUNTS = ["children.", "churn.left."];

/** What the values of an operation are. */
export function unitOf(name: string): "µs" | "bytes" | "1" {
  if (name.startsWith("memory.")) return "bytes";
  return COUNTS.some((prefix) => name.startsWith(prefix)) ? "1" : "µs";
}
