import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { runWith } from "../../engine/run/run.js";
import { goExplore } from "../../engine/scheduler/searches.js";
import { type BuiltSources, buildSources } from "../../test/engine/build-sources.js";
import { inlineEnvironment } from "../../test/engine/inline-executor.js";
import { startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { FakeCommand } from "../../test/fakes/fake-guest.js";

const SOURCE = "examples/lock/index.ts";

let built: BuiltSources;

beforeAll(async () => {
  built = await buildSources(SOURCE);
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
});

/** What the script of the example does in a real guest. */
const turn: FakeCommand = ({ argv, guest }) => {
  const { files } = guest.memory;
  const turned = `${files["turned"] ?? ""}${argv[1]}`;
  const kept = "lrrl".startsWith(turned) ? turned : "";
  files["turned"] = Buffer.from(kept);
  return { stdout: `${kept}\n` };
};

describe("the smallest environment", () => {
  it("is shown in the documentation as it is here", () => {
    const root = new URL("../../", import.meta.url);
    const shown = readFileSync(fileURLToPath(new URL("docs/runs.md", root)), "utf8");
    const source = readFileSync(fileURLToPath(new URL(SOURCE, root)), "utf8");
    expect(shown).toContain(source.replace('"../../index.js"', '"coppice"'));
  });

  it("is explored until the lock is open", async () => {
    await using daemon = await startFakeDaemon({ commands: { "/srv/turn": turn } });
    await using host = await daemon.connect({ pool: { maxReady: 0 } });
    const { best } = await runWith(inlineEnvironment({ host }), {
      environment: built.url(SOURCE),
      search: goExplore({ stepsPerTrial: 4 }),
      budget: { steps: 80 },
      seed: 7,
      host,
    });
    expect(best.score).toBe(1);
    expect(best.trajectory.slice(-4).map(({ action }) => action)).toEqual(["l", "r", "r", "l"]);
  });
});
