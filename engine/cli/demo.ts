/** `coppice demo`: Go-Explore over forked microVMs on a real game, and whether that was worth it. */

import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";

import type { Host, Template } from "../../sandbox-pool/index.js";
import { run } from "../compose.js";
import { replayMismatch } from "../errors.js";
import { canonicalJson } from "../json.js";
import { openLedger } from "../ledger/ledger.js";
import { type ReplayResult, replayTrajectory } from "../replay/replay.js";
import { loadEnvironment, moduleDigest } from "../run/environment-module.js";
import type { VisitReport } from "../run/progress.js";
import type { RunResult } from "../run/run.js";
import { makeTemplate } from "../run/set-up.js";
import { goExplore, randomRollouts, type SearchSpec } from "../scheduler/searches.js";
import type { HostKind } from "./arguments.js";
import { DEMO_MODULE, type DemoModule, loadDemoModule } from "./demo-module.js";
import {
  comparisonNote,
  comparisonTable,
  type DemoOutcome,
  type DemoSummary,
  latencyTable,
  summarise,
  trajectoryLine,
  trajectoryText,
} from "./demo-report.js";
import { createDisplay } from "./display.js";
import { EXIT } from "./exit-codes.js";
import { makeFolder, writeOutput } from "./files.js";
import { type ProbeResult, probeLatency } from "./latency-probe.js";
import { connectPatiently } from "./running-host.js";
import type { Terminal } from "./terminal.js";

export interface DemoOptions {
  readonly minutes?: number;
  readonly steps?: number;
  readonly seed: number;
  readonly workers: number;
  readonly inFlight: number;
  readonly out: string;
  readonly json?: string;
  readonly host: HostKind;
}

export const DEMO_DEFAULTS = Object.freeze({
  /** A few minutes in an emulated host on two cores, and enough to leave the forest for the cave. */
  steps: 3_000,
  seed: 7,
  workers: 2,
  inFlight: 4,
  out: "coppice-demo",
  /** A trial costs a fork, so it should be some steps; longer ones wander off into what is known. */
  stepsPerTrial: 20,
  /** Of the random control: as long as a patient player without saved games would go on. */
  randomStepsPerTrial: 100,
  probeRounds: 50,
});

/** Resolves to the exit code. Rejects with a `CoppiceError`. */
export async function demo(options: DemoOptions, terminal: Terminal, signal: AbortSignal): Promise<number> {
  const module = await loadDemoModule(DEMO_MODULE);
  const out = await makeFolder(options.out);
  if (options.json !== undefined) await makeFolder(dirname(options.json));
  const host = await connectPatiently({ kind: options.host }, { terminal, signal });
  try {
    return await new Demo({ options, terminal, signal, module, out, host }).run();
  } finally {
    // After Ctrl-C nothing of ours may stay, but what `host start` was asked for; otherwise the next start is quicker while the host is up.
    await host.close({ stopHostIfUnused: signal.aborted });
  }
}

interface DemoParts {
  readonly options: DemoOptions;
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
  readonly module: DemoModule;
  readonly out: string;
  readonly host: Host;
}

class Demo {
  readonly #parts: DemoParts;
  readonly #visits: VisitReport[] = [];

  constructor(parts: DemoParts) {
    this.#parts = parts;
  }

  async run(): Promise<number> {
    const { terminal, options } = this.#parts;
    await this.#freshLedger();
    const explored = await this.#explore();
    if (explored.spent.steps === 0) {
      terminal.log("The budget ended before the first step: give more minutes.");
      return EXIT.nothingFound;
    }
    const random = await this.#control(explored.spent.steps);
    const template = await this.#template();
    terminal.log("replays the best trajectory from the template");
    const replay = await this.#replay(explored, template);
    terminal.log("measures latencies");
    const probe = await this.#probe(template);
    const outcome: DemoOutcome = { explored, random, replay, probe };
    const summary = summarise(outcome);
    const files = await this.#write(outcome, summary);
    this.#print(outcome, summary, files);
    if (options.json !== undefined) await writeOutput(options.json, `${JSON.stringify(summary, null, 2)}\n`);
    const [first] = replay.mismatches;
    if (first !== undefined) throw replayMismatch(first.step, first.action);
    return summary.goExplore.cells > 1 ? EXIT.done : EXIT.nothingFound;
  }

  async #explore(): Promise<RunResult> {
    const { options } = this.#parts;
    const { minutes } = options;
    const steps = options.steps ?? (minutes === undefined ? DEMO_DEFAULTS.steps : undefined);
    const budget = {
      ...(steps === undefined ? {} : { steps }),
      ...(minutes === undefined ? {} : { wallMs: minutes * 60_000 }),
    };
    const search = goExplore({ stepsPerTrial: DEMO_DEFAULTS.stepsPerTrial });
    return await this.#run("Go-Explore", { search, budget, onVisit: (visit) => this.#visits.push(visit) });
  }

  /** The same steps, actions and seed, without going back to what was found. */
  async #control(steps: number): Promise<RunResult> {
    const search = randomRollouts({ stepsPerTrial: DEMO_DEFAULTS.randomStepsPerTrial });
    return await this.#run("random control, the same number of steps", { search, budget: { steps } });
  }

  async #run(
    name: string,
    what: {
      readonly search: SearchSpec;
      readonly budget: { readonly steps?: number; readonly wallMs?: number };
      readonly onVisit?: (visit: VisitReport) => void;
    },
  ): Promise<RunResult> {
    const { options, terminal, signal, module, host } = this.#parts;
    const { seed, workers, inFlight } = options;
    const title = `${module.title}: ${name}  (seed ${seed}, ${workers} workers, ${host.info.kind})`;
    const display = createDisplay(terminal, { title, situation: module.situation });
    try {
      return await run({
        environment: DEMO_MODULE,
        seed,
        workers,
        inFlight,
        host,
        signal,
        ledger: this.#ledgerPath(),
        onSetUp: (text) => terminal.log(text),
        onProgress: (progress) => display.update(progress),
        ...what,
      });
    } finally {
      display.end();
    }
  }

  async #template(): Promise<Template> {
    const { host, options, signal } = this.#parts;
    const [environment, digest] = await Promise.all([loadEnvironment(DEMO_MODULE), moduleDigest(DEMO_MODULE)]);
    return await makeTemplate({ host, environment, digest, seed: options.seed, signal, onProgress: () => {} });
  }

  async #replay({ best }: RunResult, template: Template): Promise<ReplayResult> {
    const { options, signal } = this.#parts;
    const environment = await loadEnvironment(DEMO_MODULE);
    const { root, trajectory: steps } = best;
    return await replayTrajectory({ template, environment, seed: options.seed, root, steps, signal });
  }

  async #probe(template: Template): Promise<ProbeResult> {
    const { host, signal } = this.#parts;
    return await probeLatency({ host, template, rounds: DEMO_DEFAULTS.probeRounds, signal });
  }

  async #write(outcome: DemoOutcome, summary: DemoSummary): Promise<readonly string[]> {
    const { module, out } = this.#parts;
    const contents: Readonly<Record<string, string>> = {
      "map.svg": module.drawMap(this.#visits, outcome.explored.best.trajectory),
      "tree.json": `${canonicalJson(outcome.explored.tree)}\n`,
      "trajectory.txt": trajectoryText(outcome, module),
      "summary.json": `${JSON.stringify(summary, null, 2)}\n`,
    };
    for (const [name, text] of Object.entries(contents)) await writeOutput(join(out, name), text);
    return [...Object.keys(contents).map((name) => join(out, name)), this.#ledgerPath()];
  }

  #print(outcome: DemoOutcome, summary: DemoSummary, files: readonly string[]): void {
    const { terminal } = this.#parts;
    const { best } = outcome.explored;
    const { steps, mismatches } = summary.replay;
    terminal.print(
      [
        "",
        comparisonTable(summary),
        ...[comparisonNote(summary)].filter(Boolean),
        `${summary.stepsPerSecond} steps a second. Checkpoints: ${summary.checkpoints.taken} taken, ` +
          `${summary.checkpoints.pruned} pruned, ${summary.checkpoints.hot} hot at the end.`,
        "",
        latencyTable(outcome),
        "",
        `Best trajectory, score ${best.score} in ${best.depth} steps:`,
        trajectoryLine(outcome, terminal.columns),
        `Replayed from the template: ${steps} steps, ${mismatches} mismatches.`,
        "",
        "Written:",
        ...files.map((file) => `  ${file}`),
      ].join("\n"),
    );
  }

  /** One demonstration, one ledger: an older one of ours is replaced, anything else is refused. */
  async #freshLedger(): Promise<void> {
    const path = this.#ledgerPath();
    openLedger(path).close();
    for (const suffix of ["", "-wal", "-shm"]) await rm(`${path}${suffix}`, { force: true });
  }

  #ledgerPath(): string {
    return join(this.#parts.out, "ledger.sqlite");
  }
}
