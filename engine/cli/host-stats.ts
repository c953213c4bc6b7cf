/** `coppice host stats`: what runs on a host and what it takes, as a table that follows. */

import { setTimeout as sleep } from "node:timers/promises";

import Table from "cli-table3";
import type { Command } from "commander";
import { createLogUpdate } from "log-update";

import type { HostInfo, HostStats } from "../../sandbox-pool/index.js";
import { type HostKind, hostOption, positiveNumber } from "./arguments.js";
import { number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";
import { connectPatiently } from "./running-host.js";

interface StatsOptions {
  readonly host: HostKind;
  readonly interval: number;
  readonly json?: boolean;
  readonly once?: boolean;
}

/** An hour. */
const MAX_INTERVAL_SECONDS = 3_600;

export function addStats(host: Command, parts: ProgramParts): void {
  host
    .command("stats")
    .summary("what runs on the host, and what it takes")
    .description(
      "Shows what runs on the host, how much memory it has left and what it does a second, until Ctrl-C; once where the output is no terminal. Starts a host where none runs.",
    )
    .addOption(hostOption())
    .option("--interval <s>", "seconds between two looks", positiveNumber(MAX_INTERVAL_SECONDS), 1)
    .option("--once", "print it once and end")
    .option("--json", "print it once as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  coppice host stats\n  coppice host stats --once\n  coppice host stats --json | jq .memory",
    )
    .action(async (options: StatsOptions) => parts.onDone(await stats(options, parts)));
}

async function stats(options: StatsOptions, parts: ProgramParts): Promise<number> {
  const { terminal, signal, onSignal } = parts;
  await using host = await connectPatiently({ kind: options.host, pool: { maxReady: 0 } }, parts);
  const first = await host.stats({ signal });
  if (options.json === true) {
    terminal.print(JSON.stringify({ ...host.info, ...first }));
    return EXIT.done;
  }
  if (options.once === true || process.stdout.isTTY !== true) {
    terminal.print(statsTable(host.info, first));
    return EXIT.done;
  }
  const looked = new AbortController();
  const ended = AbortSignal.any([looked.signal, signal]);
  // Ctrl-C is how one ends looking.
  using _ = onSignal(() => {
    looked.abort();
    return true;
  });
  const draw = createLogUpdate(process.stdout);
  let before = { stats: first, atMs: performance.now() };
  draw(statsTable(host.info, first));
  while (await passes(options.interval * 1_000, ended)) {
    const now = { stats: await host.stats({ signal }), atMs: performance.now() };
    const seconds = (now.atMs - before.atMs) / 1_000;
    draw(statsTable(host.info, now.stats, { before: before.stats, seconds }));
    before = now;
  }
  draw.done();
  return EXIT.done;
}

/** False where somebody has ended it meanwhile. */
async function passes(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  await sleep(milliseconds, undefined, { signal }).catch(() => undefined);
  return !signal.aborted;
}

interface Since {
  readonly before: HostStats;
  readonly seconds: number;
}

export function statsTable(info: HostInfo, found: HostStats, since?: Since): string {
  const table = new Table({ style: { head: [], border: [] } });
  const { sandboxes, checkpoints, memory, counters } = found;
  table.push(
    ["host", `${info.kind}, ${info.cpus} CPUs, coppiced ${info.version}`],
    ["memory", `${mebibytes(memory.availableBytes)} of ${mebibytes(memory.totalBytes)} available`],
    ["sessions", number(found.sessions)],
    ["sandboxes", list(sandboxes)],
    ["checkpoints", list(checkpoints)],
    ["limits", `memory: ${info.limits.memory}, cpuShare: ${info.limits.cpuShare}, cpuMax: ${info.limits.cpuMax}`],
    ["cgroups", number(found.cgroups)],
    ["since start", list(counters)],
  );
  if (since !== undefined) table.push(["a second", list(rates(counters, since))]);
  return table.toString();
}

function rates(counters: HostStats["counters"], { before, seconds }: Since): Readonly<Record<string, number>> {
  const names = Object.keys(counters) as (keyof HostStats["counters"])[];
  const rate = (name: keyof HostStats["counters"]): number => (counters[name] - before.counters[name]) / seconds;
  return Object.fromEntries(names.map((name) => [name, Math.round(rate(name) * 10) / 10]));
}

function list(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .map(([name, count]) => `${number(count)} ${name}`)
    .join(", ");
}

function mebibytes(bytes: number): string {
  return `${number(Math.round(bytes / 2 ** 20))} MiB`;
}
