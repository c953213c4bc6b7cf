/** The report for people. */

import Table from "cli-table3";

import type { BenchReport, OperationReport } from "./run.js";
import type { Scenario } from "./scenario.js";

const BYTES_PER_MIB = 1024 * 1024;

export function table({ machine, host, noise, operations, ratios }: BenchReport): string {
  const figures = new Table({ head: ["", "n", "min", "p50 (95 %)", "p90", "p99"], style: { head: [], border: [] } });
  for (const [name, operation] of Object.entries(operations)) figures.push(row(name, operation));
  const quotients = Object.entries(ratios).map(
    ([name, { value, low, high }]) => `${name}: ${value} (${low} to ${high})`,
  );
  const stages = Object.entries(operations)
    .filter(([, operation]) => Object.keys(operation.stages).length > 0)
    .map(([name, operation]) => `${name}: ${stageLine(operation)}`);
  return [
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryMiB} MiB, Linux ${machine.kernel}, Node ${machine.node}`,
    `host: ${host.kind}, ${host.cpus} CPU${host.cpus === 1 ? "" : "s"}, ${host.memoryMiB} MiB`,
    `load ${noise.before.load} before, ${noise.after.load} after; the same work varies by ` +
      `${percent(noise.before.spread)} before, ${percent(noise.after.spread)} after`,
    "",
    figures.toString(),
    ...quotients,
    "",
    "Medians of the stages, ms:",
    ...stages,
  ].join("\n");
}

function row(name: string, { unit, n, min, p50, p90, p99, p50Interval }: OperationReport): string[] {
  const show = (value: number): string => {
    if (unit === "bytes") return `${(value / BYTES_PER_MIB).toFixed(2)} MiB`;
    return unit === "1" ? String(value) : `${milliseconds(value)} ms`;
  };
  const interval = p50Interval === null ? "" : ` (${show(p50Interval[0])} to ${show(p50Interval[1])})`;
  return [name, String(n), show(min), `${show(p50)}${interval}`, show(p90), show(p99)];
}

function stageLine({ stages }: OperationReport): string {
  return Object.entries(stages)
    .map(([stage, microseconds]) => `${stage} ${milliseconds(microseconds)}`)
    .join(", ");
}

function milliseconds(microseconds: number): string {
  return (microseconds / 1_000).toFixed(2);
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

export function listing(scenarios: readonly Scenario[]): string {
  return scenarios.map(({ names, about }) => `${names.join("\n")}\n    ${about}`).join("\n");
}
