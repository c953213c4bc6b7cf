import { chmod, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { CoppiceError } from "../errors.js";
import { type LaunchPlan, launchHost } from "./launch.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-launch-"));
  vi.stubEnv("XDG_STATE_HOME", join(folder, "state"));
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true, force: true });
});

/** A keeper that is a shell script; `$2` is the host's directory. */
async function keeper(script: string): Promise<string> {
  const path = join(folder, "keeper");
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}

async function prepare(directory: string): Promise<LaunchPlan> {
  const endpoint = { unix: join(directory, "host.sock") };
  return { record: { kind: "kvm", key: "key", instance: 0, endpoint }, command: ["unused"] };
}

const options = () => ({ runtime: folder, kind: "kvm", instance: 0, prepare }) as const;

async function expectNoRests(): Promise<void> {
  expect((await readdir(folder)).filter((name) => name.startsWith("kvm-"))).toEqual([]);
}

describe("a host that does not start", () => {
  it("is a typed error with its last words, without what would reach a terminal, and leaves nothing", async () => {
    const path = await keeper(`printf 'bad \\033[31mluck\\033[0m\\007\\n' > "$2/console.log"; echo oh >&2; exit 3`);
    const failure = launchHost({ ...options(), keeper: path });
    await expect(failure).rejects.toMatchObject({
      code: "HOST_START_FAILED",
      retryable: true,
      message: expect.stringMatching(/Its last words:\noh\nbad luck$/),
    });
    await expectNoRests();
  });

  it("for a reason that may pass is tried again with a new plan, a few times", async () => {
    const path = await keeper(`echo "port is taken" > "$2/console.log"; sleep 0.4`);
    const plans = vi.fn(prepare);
    const failure = launchHost({ ...options(), keeper: path, prepare: plans, retryWhen: /port is taken/ });
    await expect(failure).rejects.toMatchObject({ code: "HOST_START_FAILED" });
    expect(new Set(plans.mock.calls.map(([directory]) => directory)).size).toBe(5);
    await expectNoRests();
  });

  it("since its keeper is missing is a typed error, and leaves nothing", async () => {
    const failure = launchHost({ ...options(), keeper: join(folder, "none") });
    await expect(failure).rejects.toMatchObject({
      code: "HOST_START_FAILED",
      message: expect.stringContaining("ENOENT"),
    });
    await expectNoRests();
  });

  it("since it can't be prepared fails with that error, and leaves nothing", async () => {
    const refusal = new CoppiceError("too small", { code: "MEMORY_TOO_SMALL", faultDomain: "host", remedy: "" });
    const failure = launchHost({ ...options(), keeper: await keeper(""), prepare: () => Promise.reject(refusal) });
    await expect(failure).rejects.toBe(refusal);
    await expectNoRests();
  });

  it("before it is given up is ended, and leaves nothing", async () => {
    const path = await keeper("exec sleep 600");
    const failure = launchHost({ ...options(), keeper: path, signal: AbortSignal.timeout(200) });
    await expect(failure).rejects.toMatchObject({ code: "ABORTED" });
    await expectNoRests();
  });
});
