import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { execa } from "execa";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type BuiltSources, buildSources } from "../../test/engine/build-sources.js";

const MAIN = "engine/cli/main.ts";

let built: BuiltSources;
let home: string;

beforeAll(async () => {
  built = await buildSources(MAIN);
  home = await mkdtemp(join(tmpdir(), "coppice-cli-"));
});

afterAll(async () => {
  await built[Symbol.asyncDispose]();
  await rm(home, { recursive: true, force: true });
});

interface Outcome {
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** In a home of its own: nothing here may find or start a host of this machine. */
async function coppice(...args: readonly string[]): Promise<Outcome> {
  const env = { HOME: home, XDG_RUNTIME_DIR: home, XDG_CACHE_HOME: home, XDG_STATE_HOME: home };
  const child = await execa(process.execPath, [built.path(MAIN), ...args], { reject: false, env, cwd: home });
  return { exitCode: child.exitCode, stdout: child.stdout, stderr: child.stderr };
}

describe("the command line", () => {
  it("without words shows its commands and ends with 2", async () => {
    const { exitCode, stderr } = await coppice();
    expect(exitCode).toBe(2);
    expect(stderr).toContain("demo [options]");
  });

  it("gives the help to stdout and ends with 0", async () => {
    const { exitCode, stdout } = await coppice("--help");
    expect(exitCode).toBe(0);
    expect(stdout).toContain("Usage: coppice");
  });

  it("refuses an unknown word with exit code 2 and the nearest known one", async () => {
    const { exitCode, stdout, stderr } = await coppice("demmo");
    expect(exitCode).toBe(2);
    expect(stderr).toContain("Did you mean demo?");
    expect(stdout).toBe("");
  });
});
