import { afterEach, beforeEach, describe, expect, it } from "vitest";

import type { Host } from "../../sandbox-pool/index.js";
import { inlineEnvironment } from "../../test/engine/inline-executor.js";
import { walkProgram } from "../../test/engine/walk-program.js";
import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import { goExplore } from "../scheduler/searches.js";
import type { RunOptions } from "./options.js";
import { type RunResult, runWith } from "./run.js";

const walk = new URL("../../test/engine/walk-environment.ts", import.meta.url);

let daemon: FakeDaemon;
let host: Host;

beforeEach(async () => {
  daemon = await startFakeDaemon({ programs: { walk: walkProgram } });
  host = await daemon.connect();
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

function explore(options: Partial<RunOptions> = {}, delay?: (trial: number) => number): Promise<RunResult> {
  return runWith(inlineEnvironment({ host, ...(delay === undefined ? {} : { delay }) }), {
    environment: walk,
    search: goExplore({ stepsPerTrial: 10 }),
    budget: { steps: 600 },
    seed: 7,
    host,
    ...options,
  });
}

describe("a run", () => {
  it("finds cells that random steps from the start would not, and spends its budget exactly", async () => {
    const result = await explore();
    expect(result.ended).toBe("steps");
    expect(result.spent.steps).toBe(600);
    expect(result.summary.cells).toBeGreaterThan(20);
    expect(result.best.trajectory).toHaveLength(result.best.depth);
  });
});
