import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { identifyProcess, isRunning, type ProcessIdentity, signalProcess } from "./process-identity.js";
import {
  addUser,
  countUsers,
  type HostRecord,
  listHosts,
  makeHostDirectory,
  removeStale,
  writeRecord,
} from "./record.js";
import { runtimeDirectory } from "./runtime-directory.js";

let runtime: string;

beforeEach(async () => {
  runtime = await mkdtemp(join(tmpdir(), "coppice-run-"));
});

afterEach(async () => {
  await rm(runtime, { recursive: true, force: true });
});

function self(): ProcessIdentity {
  const identity = identifyProcess(process.pid);
  if (identity === undefined) throw new Error("this process runs");
  return identity;
}

/** Of a process that was killed. */
async function dead(): Promise<ProcessIdentity> {
  const child = spawn("sleep", ["600"]);
  await once(child, "spawn");
  const identity = identifyProcess(child.pid ?? 0);
  if (identity === undefined) throw new Error("the child runs");
  child.kill("SIGKILL");
  await once(child, "exit");
  return identity;
}

/** Of an earlier process with an id that a running one has now. */
function recycled(): ProcessIdentity {
  return { ...self(), started: self().started.replace(/\d+$/, (ticks) => `${Number(ticks) - 1}`) };
}

function recordOf(identity: ProcessIdentity): HostRecord {
  const endpoint = { host: "127.0.0.1", port: 7_000 };
  return { kind: "carrier", process: identity, key: "key", instance: 0, endpoint, token: "t", startedAt: "now" };
}

function hostOf(identity: ProcessIdentity): string {
  const directory = makeHostDirectory(runtime, "carrier");
  writeRecord(directory, recordOf(identity));
  return directory;
}

describe("a host's record", () => {
  it("of a running process is listed, under its kind", async () => {
    const directory = hostOf(self());
    expect(listHosts(runtime, "carrier")).toEqual([{ ...recordOf(self()), directory }]);
    expect(listHosts(runtime, "kvm")).toEqual([]);
    expect((await lstat(join(directory, "host.json"))).mode & 0o777).toBe(0o600);
    expect((await lstat(directory)).mode & 0o777).toBe(0o700);
  });

  it("of a dead process is not trusted, and is removed", async () => {
    hostOf(await dead());
    const alive = hostOf(self());
    expect(listHosts(runtime, "carrier").map((host) => host.directory)).toEqual([alive]);
    removeStale(runtime, "carrier");
    expect(await readdir(runtime)).toEqual([alive.slice(runtime.length + 1)]);
  });

  it("of a process whose id another one has now is not trusted, and the other one is left alone", () => {
    hostOf(recycled());
    expect(listHosts(runtime, "carrier")).toEqual([]);
    expect(isRunning(recycled())).toBe(false);
    // Were the id alone compared, this would end the test.
    signalProcess(recycled(), "SIGKILL");
    expect(isRunning(self())).toBe(true);
  });

  it("of an earlier boot is not trusted", () => {
    hostOf({ ...self(), started: self().started.replace(/^[0-9a-f]{8}/, "00000000") });
    expect(listHosts(runtime, "carrier")).toEqual([]);
  });

  it.each(["", "{", "null", "[]", '{"kind":"carrier"}', '{"process":{"pid":-1,"started":"x"}}'])(
    "that holds %j is no host, and is removed",
    async (text) => {
      await writeFile(join(makeHostDirectory(runtime, "carrier"), "host.json"), text);
      expect(listHosts(runtime, "carrier")).toEqual([]);
      removeStale(runtime, "carrier");
      expect(await readdir(runtime)).toEqual([]);
    },
  );

  it("of another kind, and files of other names, survive the removal of what is stale", async () => {
    const other = makeHostDirectory(runtime, "kvm").slice(runtime.length + 1);
    await writeFile(join(runtime, "carrier.lock"), "");
    await mkdir(join(runtime, "carrier-backup"));
    removeStale(runtime, "carrier");
    expect(await readdir(runtime)).toEqual(["carrier-backup", "carrier.lock", other].sort());
  });
});

describe("users of a host", () => {
  it("count until they take it back", () => {
    const directory = hostOf(self());
    const [first, second] = [addUser(directory), addUser(directory)];
    expect(countUsers(directory)).toBe(2);
    first();
    first();
    expect(countUsers(directory)).toBe(1);
    second();
    expect(countUsers(directory)).toBe(0);
  });

  it("that died, or whose file is damaged, do not count", async () => {
    const directory = hostOf(self());
    await writeFile(join(directory, "users", "1-a"), JSON.stringify(await dead()));
    await writeFile(join(directory, "users", "1-b"), JSON.stringify(recycled()));
    await writeFile(join(directory, "users", "1-c"), '{"pid":');
    await writeFile(join(directory, "users", "1-d"), "null");
    await writeFile(join(directory, "users", "1-e"), "{}");
    expect(countUsers(directory)).toBe(0);
  });
});

describe("a process", () => {
  it("that has ended and was not collected does not run", async () => {
    // Its parent becomes a program that collects nobody.
    const parent = spawn("sh", ["-c", "sh -c 'echo $$; exec sleep 0.2' & exec sleep 600"]);
    const [line] = (await once(parent.stdout, "data")) as [Buffer];
    const pid = Number(String(line));
    for (let state = ""; state !== "Z"; ) {
      const stat = await readFile(`/proc/${pid}/stat`, "latin1");
      state = stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(identifyProcess(pid)).toBeUndefined();
    parent.kill("SIGKILL");
  });
});

describe("the runtime directory", () => {
  it("is made private below XDG_RUNTIME_DIR, and made private again", async () => {
    const directory = runtimeDirectory({ XDG_RUNTIME_DIR: runtime });
    expect(directory).toBe(join(runtime, "coppice"));
    expect((await lstat(directory)).mode & 0o777).toBe(0o700);
    await chmod(directory, 0o755);
    expect(runtimeDirectory({ XDG_RUNTIME_DIR: runtime })).toBe(directory);
    expect((await lstat(directory)).mode & 0o777).toBe(0o700);
  });

  it("that is a link or a file is refused", async () => {
    await mkdir(join(runtime, "elsewhere"));
    await symlink(join(runtime, "elsewhere"), join(runtime, "coppice"));
    const refusal = expect.objectContaining({ code: "RUNTIME_DIRECTORY_UNUSABLE", faultDomain: "user" });
    expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: runtime })).toThrow(refusal);
    await rm(join(runtime, "coppice"));
    await symlink(join(runtime, "nowhere"), join(runtime, "coppice"));
    expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: runtime })).toThrow(refusal);
    await rm(join(runtime, "coppice"));
    await writeFile(join(runtime, "coppice"), "");
    expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: runtime })).toThrow(refusal);
  });

  it.runIf(process.getuid?.() === 0)("of another user is refused", async () => {
    await chown(runtimeDirectory({ XDG_RUNTIME_DIR: runtime }), 12_345, 12_345);
    expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: runtime })).toThrow("belongs to user 12345");
  });

  it("with a name too long for sockets is refused", () => {
    expect(() => makeHostDirectory(join(runtime, "n".repeat(90)), "kvm")).toThrow(
      expect.objectContaining({ code: "RUNTIME_DIRECTORY_UNUSABLE" }),
    );
  });
});
