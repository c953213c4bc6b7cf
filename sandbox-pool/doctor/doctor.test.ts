import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { diagnose } from "./diagnose.js";
import { probeKvm } from "./probe-kvm.js";
import { runProgram } from "./run-program.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-doctor-"));
  vi.stubEnv("XDG_RUNTIME_DIR", folder);
  vi.stubEnv("XDG_STATE_HOME", folder);
  vi.stubEnv("XDG_CACHE_HOME", folder);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true, force: true });
});

/** A directory of native programs whose probe is a shell script. */
async function nativeWithProbe(script: string): Promise<string> {
  const directory = join(folder, "native");
  await mkdir(directory, { recursive: true });
  for (const name of ["coppice-agent", "coppiced", "coppice-keeper", "coppice-probe", "coppice-vmm"]) {
    await writeFile(join(directory, name), `#!/bin/sh\n${name === "coppice-probe" ? script : "exit 1"}\n`);
    await chmod(join(directory, name), 0o755);
  }
  return directory;
}

describe("diagnose", () => {
  it("looks at everything once, and has a remedy for each problem", async () => {
    const { host, checks } = await diagnose({ nativeDirectory: await nativeWithProbe("exit 1") });
    expect(["carrier", "none"]).toContain(host);
    expect(new Set(checks.map((check) => check.name)).size).toBe(checks.length);
    for (const check of checks.filter((one) => one.severity === "problem")) {
      expect(check).toMatchObject({ remedy: expect.stringMatching(/\S/) });
    }
    expect(checks).toContainEqual({ name: "carrier", severity: "ok", message: "none runs" });
    expect(checks).toContainEqual(expect.objectContaining({ name: "cache", severity: "note" }));
  });

  it("says that native programs are missing, and goes on", async () => {
    const { checks } = await diagnose({ nativeDirectory: folder });
    expect(checks).toContainEqual({
      name: "native programs",
      severity: "problem",
      message: expect.stringContaining(`is not in ${folder}`),
      remedy: expect.stringContaining("Build the native programs"),
    });
    expect(checks.at(-1)).toMatchObject({ name: "carrier" });
  });
});

// Without the device nothing is run.
describe.runIf(existsSync("/dev/kvm"))("probeKvm", () => {
  const USABLE = `echo x >> $(dirname "$0")/runs; echo '{"usable":true,"reason":"A guest ran"}'`;

  it("believes the probe, and its last answer for a while", async () => {
    const nativeDirectory = await nativeWithProbe(USABLE);
    const answer = { usable: true, reason: "A guest ran" };
    expect(await probeKvm({ nativeDirectory })).toEqual(answer);
    expect(await probeKvm({ nativeDirectory })).toEqual(answer);
    expect(await readFile(join(nativeDirectory, "runs"), "utf8")).toBe("x\n");
    expect(await probeKvm({ nativeDirectory, fresh: true })).toEqual(answer);
    expect(await readFile(join(nativeDirectory, "runs"), "utf8")).toBe("x\nx\n");
  });

  it("asks again where the last answer is damaged, old, or of another probe", async () => {
    const nativeDirectory = await nativeWithProbe(USABLE);
    await probeKvm({ nativeDirectory });
    const file = join(folder, "coppice", "kvm-probe.json");
    const record = JSON.parse(await readFile(file, "utf8")) as object;
    for (const text of [
      "{",
      "null",
      JSON.stringify({ ...record, at: 0 }),
      JSON.stringify({ ...record, machine: "" }),
    ]) {
      await writeFile(file, text);
      await probeKvm({ nativeDirectory });
    }
    expect(await readFile(join(nativeDirectory, "runs"), "utf8")).toBe("x\n".repeat(5));
  });

  it.each([
    ["exit 3", "The probe died (exit code 3)"],
    ["kill -SEGV $$", "The probe died (SIGSEGV)"],
    ["echo '{}'", "The probe died (exit code 0)"],
    [`echo '{"usable":false,"reason":"No guest ran"}'`, "No guest ran"],
  ])("whose probe does %j says that KVM is not usable, and why", async (script, reason) => {
    expect(await probeKvm({ nativeDirectory: await nativeWithProbe(script) })).toMatchObject({ usable: false, reason });
  });

  it("that is aborted ends the probe", async () => {
    const nativeDirectory = await nativeWithProbe("exec sleep 600");
    const failure = probeKvm({ nativeDirectory, signal: AbortSignal.timeout(100) });
    await expect(failure).rejects.toMatchObject({ code: "ABORTED" });
  });
});

describe("runProgram", () => {
  it("ends a program above its time", async () => {
    const result = await runProgram("/bin/sh", ["-c", "echo begun; exec sleep 600"], { timeoutMs: 300 });
    expect(result).toEqual({ stdout: "begun\n", exitCode: null, signal: "SIGKILL", timedOut: true });
  });

  it("ends a program whose signal was aborted before", async () => {
    const result = await runProgram("/bin/sleep", ["5"], { timeoutMs: 60_000, signal: AbortSignal.abort() });
    expect(result).toMatchObject({ signal: "SIGKILL", timedOut: false });
  });

  it("of a program that does not exist gives no exit code", async () => {
    expect(await runProgram("/no/such/program", [], { timeoutMs: 60_000 })).toMatchObject({
      exitCode: null,
      signal: null,
    });
  });
});
