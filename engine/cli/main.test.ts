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
function environment(): Readonly<Record<string, string>> {
  return { HOME: home, XDG_RUNTIME_DIR: home, XDG_CACHE_HOME: home, XDG_STATE_HOME: home };
}

async function coppice(...args: readonly string[]): Promise<Outcome> {
  const env = environment();
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

  it.each([["--help"], ["host", "status", "--json"]])(
    "of %j on a full disk says so in a line, and ends with 5",
    async (...args) => {
      const script = `exec "$@" > /dev/full`;
      const command = ["-c", script, "sh", process.execPath, built.path(MAIN), ...args];
      const { exitCode, stderr } = await execa("/bin/sh", command, { reject: false, env: environment() });
      expect(exitCode).toBe(5);
      expect(stderr).toMatch(/^error: stdout can not be written: ENOSPC.*\(OUTPUT_FAILED\)\n {2}to go on: [^\n]*$/);
    },
  );

  it("whose reader has left ends quietly, as by SIGPIPE", async () => {
    const child = execa(process.execPath, [built.path(MAIN), "--help"], { reject: false, env: environment() });
    child.stdout.destroy();
    const { exitCode, stderr } = await child;
    expect([exitCode, stderr]).toEqual([141, ""]);
  });

  it("exec that runs no program ends with 125, which is no program's", async () => {
    expect((await coppice("exec", "--no-such-option")).exitCode).toBe(125);
  });
});
