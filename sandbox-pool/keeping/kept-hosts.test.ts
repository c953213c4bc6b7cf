import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { encode } from "../client/codec.js";
import { frame } from "../client/frames.js";
import { CLIENT_PROTOCOL } from "../client/messages.js";
import { DEFAULTS } from "../defaults.js";
import { type EnsureOptions, ensureHost, hostStatus } from "./kept-hosts.js";
import { identifyProcess, isRunning, type ProcessIdentity } from "./process-identity.js";
import { makeHostDirectory, writeRecord } from "./record.js";
import { runtimeDirectory } from "./runtime-directory.js";

const FULL = { code: "TOO_MANY_CONNECTIONS", message: "Too many", faultDomain: "host", retryable: true };

let folder: string;
let keeper: ChildProcess;
let identity: ProcessIdentity;
let server: Server;
let isFull: boolean;
let refused: number;

/** A host that runs: its keeper is a sleeping process, its daemon a server in this one. */
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-kept-"));
  vi.stubEnv("XDG_RUNTIME_DIR", folder);
  isFull = false;
  refused = 0;
  keeper = spawn("sleep", ["600"]);
  await once(keeper, "spawn");
  const directory = makeHostDirectory(runtimeDirectory(), "kvm");
  const unix = join(directory, "host.sock");
  server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => {
      if (isFull) {
        refused += 1;
        socket.end(frame(encode({ refused: FULL })));
        return;
      }
      const welcome = { protocol: CLIENT_PROTOCOL, version: "test", session: "s", hostKind: "kvm" };
      socket.write(frame(encode({ welcome })));
      socket.on("data", () => socket.write(frame(encode({ id: 1, result: STATS, stages: [] }))));
    });
  });
  await new Promise<void>((resolve) => server.listen(unix, resolve));
  const found = identifyProcess(keeper.pid ?? 0);
  if (found === undefined) throw new Error("the keeper runs");
  identity = found;
  writeRecord(directory, {
    kind: "kvm",
    key: "key",
    instance: 0,
    endpoint: { unix },
    process: identity,
    startedAt: "now",
  });
});

afterEach(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  keeper.kill("SIGKILL");
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

const STATS = {
  sandboxes: { booting: 0, ready: 0, leased: 0, poisoned: 0 },
  checkpoints: { hot: 0, shared: 0 },
  sessions: 1,
  memory: { totalBytes: 1, availableBytes: 1 },
  disk: { totalBytes: 1, availableBytes: 1, inMemory: false },
  counters: {
    ...{ forks: 0, parks: 0, checkpoints: 0, boots: 0, closes: 0, discarded: 0, poisoned: 0, staleReplies: 0 },
    ...{ repeatedCloses: 0, refusedHandshakes: 0, vanishedPeers: 0 },
  },
};

function options(more: Partial<EnsureOptions> = {}): EnsureOptions {
  const prepare = (): Promise<never> => Promise.reject(new Error("nothing is to be started"));
  return { kind: "kvm", instance: 0, key: "key", keeper: "none", startMessage: "starts", prepare, ...more };
}

const hasEnded = (): boolean => !isRunning(identity);

describe("a host that is full", () => {
  it("is said to be full, and is left alone", async () => {
    isFull = true;
    vi.spyOn(performance, "now").mockImplementation(() => (refused === 0 ? 0 : DEFAULTS.connection.fullPatienceMs));
    const ensuring = ensureHost(options());
    await expect(ensuring).rejects.toMatchObject({
      code: "TOO_MANY_CONNECTIONS",
      message: expect.stringContaining("is full") as string,
      remedy: expect.not.stringContaining("host stop") as string,
    });
    expect(hasEnded()).toBe(false);
    expect(await hostStatus("kvm")).toMatchObject([{ sessions: null, isFull: true }]);
  });
});

describe("a host that was started on purpose", () => {
  it.each([
    [{}, true],
    [{ keep: true }, false],
  ])("asked for with %j ends with its last user: %s", async (how, ends) => {
    const starter = await ensureHost(options(how));
    await starter.release();
    const user = await ensureHost(options());
    await user.release({ stopIfUnused: true });
    expect(hasEnded()).toBe(ends);
  });
});
