import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import Database from "better-sqlite3";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";

import type { Host } from "../../sandbox-pool/index.js";
import { type BuiltSources, buildSources, WALK } from "../../test/engine/build-sources.js";
import { inlineEnvironment } from "../../test/engine/inline-executor.js";
import { type Walk, walkOn, walkProgram } from "../../test/engine/walk-program.js";
import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import { goExplore, randomRollouts } from "../scheduler/searches.js";
import type { RunOptions } from "./options.js";
import type { Progress, VisitReport } from "./progress.js";
import { type RunResult, runWith } from "./run.js";

let built: BuiltSources;

let daemon: FakeDaemon;
let host: Host;

beforeAll(async () => {
  // Built, because the variants of the environment are told apart by the query of its URL.
  built = await buildSources(WALK);
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
});

beforeEach(async () => {
  daemon = await startFakeDaemon({ programs: { walk: walkProgram } });
  host = await daemon.connect({ pool: { maxReady: 0 } });
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

function explore(options: Partial<RunOptions> = {}, delay?: (trial: number) => number): Promise<RunResult> {
  return runWith(inlineEnvironment({ host, ...(delay === undefined ? {} : { delay }) }), {
    environment: built.url(WALK),
    search: goExplore({ stepsPerTrial: 10 }),
    budget: { steps: 200 },
    seed: 7,
    host,
    ...options,
  });
}

/** What the host still holds for this session; templates are shared and stay. */
function leftOnHost(): readonly string[] {
  const checkpoints = [...daemon.state.checkpoints.values()].filter(({ session }) => session !== undefined);
  return [...daemon.state.sandboxes.keys(), ...checkpoints.map(({ id }) => id)];
}

describe("a run", () => {
  it("spends its budget of steps exactly, also where trials end early", async () => {
    const result = await explore({ budget: { steps: 203 } });
    expect(result.ended).toBe("steps");
    expect(result.spent.steps).toBe(203);
    const counted = daemon.calls.filter((call) => call === "sandbox.call:pty.send").length;
    expect(counted).toBeGreaterThanOrEqual(203);
  });

  it("gives the same tree whatever the order in which trials finish (invariant 7)", async () => {
    const inOrder = await explore();
    const shuffled = await explore({}, (trial) => [9, 0, 14, 3, 6][trial % 5] ?? 0);
    expect(JSON.stringify(shuffled.tree)).toBe(JSON.stringify(inOrder.tree));
    expect(shuffled.best.trajectory).toEqual(inOrder.best.trajectory);
  });

  it("gives another tree for another seed", async () => {
    const [seven, eight] = [await explore({ seed: 7 }), await explore({ seed: 8 })];
    expect(JSON.stringify(eight.tree)).not.toBe(JSON.stringify(seven.tree));
  });

  it("finds more than random steps from the start do", async () => {
    const budget = { steps: 400 };
    const [explored, random] = [await explore({ budget }), await explore({ budget, search: randomRollouts() })];
    expect(explored.summary.cells).toBeGreaterThan(random.summary.cells);
    expect(random.spent.steps).toBe(400);
    expect(random.summary.bestScore).toBeGreaterThan(0);
  });

  it("has a best trajectory whose actions lead to its last observation", async () => {
    const { best } = await explore();
    const last = best.trajectory.reduce<Walk>((state, { action }) => walkOn(state, action), best.root as never);
    expect(best.trajectory.at(-1)?.observation).toEqual(last);
    expect(best.trajectory).toHaveLength(best.depth);
    expect(best.score).toBe(last.x + last.y + (last.gold ? 100 : 0));
  });

  it("asks for the score in forks only, so that asking is no move of the game", async () => {
    const { best } = await explore();
    const observations = best.trajectory.map(({ observation }) => observation as unknown as Walk);
    expect(observations.map(({ moves }) => moves)).toEqual(observations.map((_, index) => index + 1));
  });

  it("counts every checkpoint that it took as pruned or hot, and leaves none on the host (invariant 9)", async () => {
    const { checkpoints, summary } = await explore();
    expect(checkpoints.taken).toBe(checkpoints.pruned + checkpoints.hot + checkpoints.evicted);
    expect(checkpoints.hot).toBe(summary.archived);
    expect(leftOnHost()).toEqual([]);
  });

  it("leaves nothing on the host where the search keeps nothing", async () => {
    const { checkpoints } = await explore({ search: randomRollouts() });
    expect(checkpoints.hot).toBe(1);
    expect(leftOnHost()).toEqual([]);
  });

  it("derives evicted checkpoints again by replay, and finds the same tree with few as with many", async () => {
    const many = await explore();
    const few = await explore({ hotCheckpoints: 3 });
    expect(few.checkpoints.evicted).toBeGreaterThan(0);
    expect(few.spent.replayedSteps).toBeGreaterThan(0);
    expect(few.spent.steps).toBe(many.spent.steps);
    expect(JSON.stringify(few.tree)).toBe(JSON.stringify(many.tree));
    expect(leftOnHost()).toEqual([]);
  });

  it("compares scores where they cost nothing", async () => {
    const result = await explore({ environment: new URL("?free", built.url(WALK)) });
    expect(result.spent.steps).toBe(200);
    expect(result.latency.score.n).toBe(0);
  });

  it("with a limit of time ends soon after it, and what trials had done counts", async () => {
    const begin = performance.now();
    const result = await explore({ budget: { wallMs: 300 } });
    expect(result.ended).toBe("wall");
    expect(performance.now() - begin).toBeLessThan(3_000);
    expect(result.spent.steps).toBeGreaterThan(0);
    expect(leftOnHost()).toEqual([]);
  });

  it("shares one template with the next run of the same environment", async () => {
    await explore();
    await explore({ seed: 8 });
    expect(daemon.state.counters.boots).toBe(1);
  });
});

describe("an aborted run", () => {
  it("rejects with ABORTED and leaves nothing on the host", async () => {
    const abort = new AbortController();
    const run = explore({ signal: abort.signal, budget: { steps: 100_000 } });
    setTimeout(() => abort.abort(), 300);
    await expect(run).rejects.toThrow(expect.objectContaining({ code: "ABORTED" }));
    expect(leftOnHost()).toEqual([]);
  });

  it("leaves nothing either of trials that have ended and whose outcome is still on its way", async () => {
    const abort = new AbortController();
    const run = explore({ signal: abort.signal, budget: { steps: 100_000 } }, () => 600);
    setTimeout(() => abort.abort(), 300);
    await expect(run).rejects.toThrow(expect.objectContaining({ code: "ABORTED" }));
    expect(leftOnHost()).toEqual([]);
  });

  it("does not even start where the signal has fired before", async () => {
    await expect(explore({ signal: AbortSignal.abort() })).rejects.toThrow(
      expect.objectContaining({ code: "ABORTED" }),
    );
    expect(daemon.calls).not.toContain("sandbox.boot");
  });
});

describe("what a run tells", () => {
  it("of visits comes in the order of the trials, with what was before and after", async () => {
    const visits: VisitReport[] = [];
    await explore({ onVisit: (visit) => visits.push(visit) }, (trial) => [9, 0, 14, 3][trial % 4] ?? 0);
    expect(visits.map(({ order }) => order)).toEqual(visits.map((_, index) => index));
    const trials = visits.map(({ trial }) => trial);
    expect(trials).toEqual(trials.toSorted((a, b) => a - b));
    for (const [index, { step, from, landmarks }] of visits.entries()) {
      if (step > 0) expect(from).toEqual(visits[index - 1]?.landmarks);
      expect(landmarks["room"]).toMatch(/^\d,\d$/);
    }
  });

  it("of progress ends with the figures of the result", async () => {
    const reports: Progress[] = [];
    const result = await explore({ onProgress: (progress) => reports.push(progress) });
    expect(reports.at(-1)).toMatchObject({
      cells: result.summary.cells,
      bestScore: result.best.score,
      depth: result.summary.depth,
      steps: 200,
      sandboxes: 0,
      checkpoints: result.checkpoints,
      landmarks: { room: expect.any(Number) },
    });
  });
});

describe("the ledger of a run", () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "coppice-run-"));
  });

  afterEach(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  it("has every trial asked before it is told, every step, and what became of each checkpoint", async () => {
    const ledger = join(folder, "run.sqlite");
    const { checkpoints, spent } = await explore({ ledger });
    const database = new Database(ledger, { readonly: true });
    const count = (kind: string): unknown =>
      database.prepare("SELECT count(*) FROM event WHERE kind = ?").pluck().get(kind);
    expect(count("trial.asked")).toBe(spent.trials);
    expect(count("trial.told")).toBe(spent.trials);
    expect(database.prepare("SELECT count(*) FROM visit").pluck().get()).toBe(spent.steps);
    // The root's own is taken by the run, not by a trial.
    expect(count("checkpoint.taken")).toBe(checkpoints.taken - 1);
    expect(count("checkpoint.released")).toBe(checkpoints.pruned);
    const late = database
      .prepare(
        `SELECT count(*) FROM event told JOIN event asked ON asked.trial = told.trial AND asked.kind = 'trial.asked'
          WHERE told.kind = 'trial.told' AND told.seq < asked.seq`,
      )
      .pluck()
      .get();
    expect(late).toBe(0);
    expect(database.prepare("SELECT body FROM event WHERE kind = 'run.ended'").pluck().get()).toBe(
      '{"reason":"steps"}',
    );
    database.close();
  });

  it("keeps what was found before an abort", async () => {
    const ledger = join(folder, "run.sqlite");
    const abort = new AbortController();
    const visits: VisitReport[] = [];
    const onVisit = (visit: VisitReport): void => {
      if (visits.push(visit) === 60) abort.abort();
    };
    await expect(explore({ ledger, signal: abort.signal, onVisit })).rejects.toThrow(/aborted/);
    const database = new Database(ledger, { readonly: true });
    expect(Number(database.prepare("SELECT count(*) FROM visit").pluck().get())).toBeGreaterThanOrEqual(60);
    expect(database.prepare("SELECT body FROM event WHERE kind = 'run.ended'").pluck().get()).toContain("aborted");
    database.close();
  });
});
