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
const MANY = 1_000_000;
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

/** The figures that were asked for of this library, and what this run found. */
const figures: { readonly figure: string; readonly wanted: string; readonly found: string }[] = [];

function note(figure: string, wanted: string, found: string): void {
  figures.push({ figure, wanted, found });
}

interface Latency {
  readonly median: string;
  /** Median, mean and 99th percentile in microseconds. */
  readonly cells: string;
}

async function time(call: () => void): Promise<Latency> {
  const bench = new Bench({ time: 0, iterations: SAMPLES, warmupTime: 0, warmupIterations: 1_000 });
  bench.add("call", call);
  await bench.run();
  const result = bench.tasks[0]?.result;
  if (result?.state !== "completed") throw new Error("The benchmark did not end");
  const { p50, mean, p99 } = result.latency;
  return { median: micro(p50), cells: [p50, mean, p99].map(micro).join(" | ") };
}

function micro(milliseconds: number): string {
  return (1_000 * milliseconds).toFixed(1);
}

/** Of processor time, so that other work on the machine takes part as little as can be. */
function now(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

function seconds(since: number): string {
  return ((now() - since) / 1_000).toFixed(2);
}

/** How much longer a tree took than n log n says, from one that is so many times smaller. */
function growth([few, soon]: readonly [number, number], [many, late]: readonly [number, number]): string {
  return (late / soon / ((many * Math.log(many)) / (few * Math.log(few)))).toFixed(2);
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
  const grownIn = new Map<number, number>();
  const searches: readonly (readonly [AnySearch, number, Partial<TreeOptions>, string])[] = [
    [uctSearch, 1_000, {}, "uct"],
    [uctSearch, MANY / 10, {}, "uct"],
    [uctSearch, MANY, {}, "uct"],
    [uctSearch, 100_000, { solver: true }, "uct, solver"],
    [uctSearch, 100_000, { window: 16 }, "uct, window 16"],
    [puct as unknown as AnySearch, 100_000, {}, "puct"],
    [gumbelMuZero as unknown as AnySearch, 100_000, {}, "gumbel-muzero"],
  ];
  for (const [search, nodes, own, name] of searches) {
    const started = now();
    const { turn } = grow(search, nodes, own);
    const grown = seconds(started);
    const { median, cells } = await time(turn);
    if (name === "uct") grownIn.set(nodes, Number(grown));
    if (name === "uct" && nodes === MANY)
      note("uct: ask and tell, 1,000,000 nodes, branching 10", "10 µs", `${median} µs`);
    rows.push(`${name} | ${nodes.toLocaleString("en")} | ${cells} | ${grown}`);
  }
  const factor = growth([MANY / 10, grownIn.get(MANY / 10) ?? 0], [MANY, grownIn.get(MANY) ?? 0]);
  note("uct: growth from 100,000 to 1,000,000 nodes, over n log n", "1", factor);
  print(
    "A trial asked and told, branching 10.",
    ["search", "nodes", "median µs", "mean µs", "p99 µs", "s to get there"],
    rows,
  );
}

function measureMemory(): void {
  const rows: string[] = [];
  for (const nodes of [MANY / 10, MANY]) {
    const before = bytesInUse();
    const { state } = grow(uctSearch, nodes);
    const used = bytesInUse() - before;
    let at = now();
    const serialised = uct.serialise(state as never);
    const serialise = seconds(at);
    at = now();
    const text = JSON.stringify(serialised);
    const write = seconds(at);
    at = now();
    const restored = uct.restore(JSON.parse(text));
    const restore = seconds(at);
    if (nodes === MANY) {
      note("bytes a node, 1,000,000 nodes", "200", `${Math.round(used / nodes)}`);
      note("serialise, 1,000,000 nodes", "2 s", `${serialise} s`);
    }
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
    const latency = await time(() => turn((id) => [1 + ((id * 7_919) % cells)]));
    if (cells === MANY / 10)
      note("go-explore: choice from 100,000 cells, its telling included", "20 µs", `${latency.median} µs`);
    rows.push(`${cells.toLocaleString("en")} | ${latency.cells}`);
  }
  print("Go-Explore: a start drawn, and a trial of one step told.", ["cells", "median µs", "mean µs", "p99 µs"], rows);
}

console.log(machine());
await timeTrials();
measureMemory();
await timeArchive();
const asked = figures.map(({ figure, wanted, found }) => `${figure} | ${wanted} | ${found}`);
print("What was asked for, at most, and what this run found.", ["figure", "asked for", "found"], asked);
