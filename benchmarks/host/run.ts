/** Runs scenarios in turns, and puts together what they recorded. */

import type { Host, Image, Stages } from "../../index.js";
import { describeMachine, type Machine, measureNoise, type Noise } from "./machine.js";
import { RATIOS } from "./operations.js";
import { type Scenario, unitOf } from "./scenario.js";
import { type Distribution, distribution, type Ratio, ratio } from "./statistics.js";

export interface OperationReport extends Distribution {
  /** Medians of the operation's stages, in microseconds, in their order. */
  readonly stages: Readonly<Record<string, number>>;
}

export interface BenchReport {
  readonly machine: Machine;
  readonly host: { readonly kind: string; readonly version: string; readonly cpus: number; readonly memoryMiB: number };
  readonly startedAt: string;
  readonly noise: { readonly before: Noise; readonly after: Noise };
  readonly operations: Readonly<Record<string, OperationReport>>;
  readonly ratios: Readonly<Record<string, Ratio>>;
}

export interface BenchOptions {
  readonly host: Host;
  readonly image: Image;
  readonly scenarios: readonly Scenario[];
  /** Rounds of a scenario that runs in every one. */
  readonly rounds: number;
  /** Names to report; a scenario runs for all of its names or not at all. */
  readonly only: (name: string) => boolean;
  readonly signal: AbortSignal;
  readonly onRound: (done: number, of: number) => void;
}

/** Rounds that are run and not recorded: caches fill, lists of hot pages are learnt. */
const WARM_UP_ROUNDS = 2;

interface Series {
  readonly values: number[];
  readonly stages: Map<string, number[]>;
}

export async function runBench(options: BenchOptions): Promise<BenchReport> {
  const { host, image, scenarios, rounds, signal, onRound } = options;
  const startedAt = new Date().toISOString();
  const before = measureNoise();
  const series = new Map<string, Series>();
  let isWarm = false;
  const record = (name: string, value: number, stages: Stages = []): void => {
    if (isWarm && options.only(name)) add(series, name, value, stages);
  };
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    isWarm = round >= 0;
    // In turns, so that a disturbance meets all of them alike.
    for (const scenario of scenarios) {
      signal.throwIfAborted();
      const isDue = isWarm ? round % scenario.every === 0 : scenario.every === 1;
      if (isDue) await scenario.run({ host, image, record, signal, round, rounds });
    }
    if (isWarm) onRound(round + 1, rounds);
  }
  const { kind, version, cpus, memoryBytes } = host.info;
  const operations = Object.fromEntries([...series].map(([name, one]) => [name, report(name, one)]));
  return {
    machine: describeMachine(),
    host: { kind, version, cpus, memoryMiB: Math.round(memoryBytes / 1024 / 1024) },
    startedAt,
    noise: { before, after: measureNoise() },
    operations,
    ratios: ratios(operations),
  };
}

function add(series: Map<string, Series>, name: string, value: number, stages: Stages): void {
  const one = series.get(name) ?? { values: [], stages: new Map<string, number[]>() };
  series.set(name, one);
  one.values.push(value);
  for (const [stage, microseconds] of stages) {
    const values = one.stages.get(stage) ?? [];
    one.stages.set(stage, values);
    values.push(microseconds);
  }
}

function report(name: string, { values, stages }: Series): OperationReport {
  return {
    ...distribution(values, unitOf(name)),
    stages: Object.fromEntries([...stages].map(([stage, of]) => [stage, distribution(of, "µs").p50])),
  };
}

function ratios(operations: Readonly<Record<string, OperationReport>>): Readonly<Record<string, Ratio>> {
  return Object.fromEntries(
    RATIOS.flatMap(({ name, a, b }) => {
      const [above, below] = [operations[a], operations[b]];
      const quotient = above === undefined || below === undefined ? undefined : ratio(above, below);
      return quotient === undefined ? [] : [[name, quotient] as const];
    }),
  );
}
