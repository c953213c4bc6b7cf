// What the search library takes: time for a trial, bytes for a node, time to save and restore. Run it with `npm run bench:search`; it
// prints Markdown and never judges.

import { cpus, loadavg, totalmem } from "node:os";
import { Bench } from "tinybench";
import {
  goExplore,
  gumbelMuZero,
  puct,
  type StepResult,
  type TreeOptions,
  type TreeSearch,
  type TreeState,
  type TreeTrial,
  uct,
} from "../../search/index.js";

type AnySearch = TreeSearch<TreeOptions, unknown>;

const BRANCHING = 10;
const ACTIONS = Array.from({ length: BRANCHING }, (_, index) => `action ${index}`);
const PRIORS = ACTIONS.map(() => 1);
const SAMPLES = 20_000;
const MIB = 2 ** 20;

/** A state without end: ten actions, equal priors, a value that looks like chance. */
function step({ seed }: TreeTrial, hasPriors: boolean): StepResult {
  const value = (seed % 1_000) / 1_000;
  const shared = { kind: "value", reward: 0, value, terminated: false, actions: ACTIONS } as const;
  return hasPriors ? { ...shared, priors: PRIORS } : shared;
}

interface Grown {
  readonly state: TreeState;
  readonly hasPriors: boolean;
  /** One trial: ask for it, tell its result. */
  readonly turn: () => void;
}

/** A tree of `nodes` nodes; nothing but asking and telling has been done with it. */
function grow(search: AnySearch, nodes: number, own: Partial<TreeOptions> = {}): Grown {
  const hasPriors = search !== (uct as unknown as AnySearch);
  const root = hasPriors ? { actions: ACTIONS, priors: PRIORS, value: 0.5 } : { actions: ACTIONS };
  const limits = { maxNodes: nodes + 10 * SAMPLES, maxSimulations: nodes + 10 * SAMPLES };
  const state = search.init({ root, range: [0, 1], window: 1, ...limits, ...own }, 1);
  const turn = (): void => {
    const trial = search.ask(state, 1).trials[0];
    if (trial === undefined) throw new Error("The search has nothing to ask");
    search.tell(state, trial.id, trial.attempt, step(trial, hasPriors));
  };
  while (state.tree.live < nodes) turn();
  return { state, hasPriors, turn };
}

/** Median, mean and 99th percentile of a call in microseconds. */
async function time(call: () => void): Promise<string> {
  const bench = new Bench({ time: 0, iterations: SAMPLES, warmupTime: 0, warmupIterations: 1_000 });
  bench.add("call", call);
  await bench.run();
  const result = bench.tasks[0]?.result;
  if (result?.state !== "completed") throw new Error("The benchmark did not end");
  const { p50, mean, p99 } = result.latency;
  return [p50, mean, p99].map(micro).join(" | ");
}

function micro(milliseconds: number): string {
  return (1_000 * milliseconds).toFixed(1);
}

function seconds(since: number): string {
  return ((performance.now() - since) / 1_000).toFixed(2);
}

/** Bytes that are in use, after everything that can be collected has been. */
function bytesInUse(): number {
  if (globalThis.gc === undefined) throw new Error("Run node with --expose-gc");
  globalThis.gc();
  globalThis.gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

function print(title: string, columns: readonly string[], rows: readonly string[]): void {
  console.log(`\n${title}\n\n| ${columns.join(" | ")} |\n|${"---|".repeat(columns.length)}`);
  for (const row of rows) console.log(`| ${row} |`);
}

function machine(): string {
  const [first] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  const load = (loadavg()[0] ?? 0).toFixed(1);
  return `${first?.model ?? "unknown processor"}, ${cpus().length} cores, ${memory} GiB; Node.js ${process.version}; load ${load}.`;
}

const uctSearch = uct as unknown as AnySearch;

async function timeTrials(): Promise<void> {
  const rows: string[] = [];
  const searches: readonly (readonly [AnySearch, number, Partial<TreeOptions>, string])[] = [
    [uctSearch, 1_000, {}, "uct"],
    [uctSearch, 100_000, {}, "uct"],
    [uctSearch, 1_000_000, {}, "uct"],
    [uctSearch, 100_000, { solver: true }, "uct, solver"],
    [uctSearch, 100_000, { window: 16 }, "uct, window 16"],
    [puct as unknown as AnySearch, 100_000, {}, "puct"],
    [gumbelMuZero as unknown as AnySearch, 100_000, {}, "gumbel-muzero"],
  ];
  for (const [search, nodes, own, name] of searches) {
    const started = performance.now();
    const { turn } = grow(search, nodes, own);
    const grown = seconds(started);
    rows.push(`${name} | ${nodes.toLocaleString("en")} | ${await time(turn)} | ${grown}`);
  }
  print(
    "A trial asked and told, branching 10.",
    ["search", "nodes", "median µs", "mean µs", "p99 µs", "s to get there"],
    rows,
  );
}

function measureMemory(): void {
  const rows: string[] = [];
  for (const nodes of [100_000, 1_000_000]) {
    const before = bytesInUse();
    const { state } = grow(uctSearch, nodes);
    const used = bytesInUse() - before;
    let at = performance.now();
    const serialised = uct.serialise(state as never);
    const serialise = seconds(at);
    at = performance.now();
    const text = JSON.stringify(serialised);
    const write = seconds(at);
    at = performance.now();
    const restored = uct.restore(JSON.parse(text));
    const restore = seconds(at);
    if (restored.tree.live !== state.tree.live) throw new Error("The copy is not what was saved");
    const size = `${(text.length / MIB).toFixed(0)} MiB`;
    rows.push([nodes.toLocaleString("en"), Math.round(used / nodes), serialise, write, size, restore].join(" | "));
  }
  const columns = ["nodes", "bytes a node", "serialise s", "to JSON s", "JSON", "from JSON and restore s"];
  print("Memory, saving, restoring: uct, branching 10, actions that are listed once.", columns, rows);
}

async function timeArchive(): Promise<void> {
  const rows: string[] = [];
  for (const cells of [1_000, 100_000]) {
    const perTrial = 100;
    const state = goExplore.init({ root: { cell: "0" }, window: 1 }, 1);
    const turn = (visitsOf: (id: number) => readonly number[]): void => {
      const trial = goExplore.ask(state, 1).trials[0];
      if (trial === undefined) throw new Error("The search has nothing to ask");
      const visits = visitsOf(trial.id).map((cell) => {
        const visit = { action: "go", cell: `${cell}`, reward: 0, terminated: false };
        return { ...visit, candidate: { checkpoint: `${trial.id}/${cell}` } };
      });
      goExplore.tell(state, trial.id, trial.attempt, { kind: "value", visits });
    };
    for (let made = 0; made < cells; made += perTrial)
      turn(() => Array.from({ length: perTrial }, (_, index) => made + index + 1));
    rows.push(`${cells.toLocaleString("en")} | ${await time(() => turn((id) => [1 + ((id * 7_919) % cells)]))}`);
  }
  print("Go-Explore: a start drawn, and a trial of one step told.", ["cells", "median µs", "mean µs", "p99 µs"], rows);
}

console.log(machine());
await timeTrials();
measureMemory();
await timeArchive();
