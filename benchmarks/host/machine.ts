/** What a figure has to be read with: the machine, and how quiet it was. */

import { cpus, loadavg, release, totalmem } from "node:os";

import { distribution } from "./statistics.js";

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryMiB: number;
  readonly kernel: string;
  readonly node: string;
}

export interface Noise {
  /** One minute's load average. */
  readonly load: number;
  /**
   * How much longer the same work takes at the 90th percentile than at its fastest, in parts of the fastest: near 0 on a
   * quiet machine.
   */
  readonly spread: number;
}

const MIB = 1024 * 1024;

export function describeMachine(): Machine {
  const all = cpus();
  return {
    cpu: all[0]?.model.trim() ?? "unknown",
    cores: all.length,
    memoryMiB: Math.round(totalmem() / MIB),
    kernel: release(),
    node: process.version,
  };
}

const ROUNDS = 60;
/** About a millisecond of work. */
const STEPS = 1_000_000;

export function measureNoise(): Noise {
  const samples = Array.from({ length: ROUNDS }, () => {
    const begin = performance.now();
    work(STEPS);
    return performance.now() - begin;
  });
  // The first ones run before the compiler has done its work.
  const { min, p90 } = distribution(samples.slice(ROUNDS / 6), "ms");
  return { load: Math.round((loadavg()[0] ?? 0) * 100) / 100, spread: Math.round((p90 / min - 1) * 100) / 100 };
}

let sink = 0;

function work(steps: number): void {
  let value = sink | 1;
  for (let step = 0; step < steps; step++) value = Math.imul(value, 0x01000193) ^ step;
  // Kept, so that the loop can not be left out.
  sink = value;
}
