import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { type FakeDaemon, fakeImageBuilder, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { Checkpoint, Host, Sandbox, TemplateOptions } from "../api.js";
import { connectHost } from "../connect.js";

const IMAGE = { debian: {} };

let daemon: FakeDaemon;
let host: Host;

beforeEach(async () => {
  daemon = await startFakeDaemon();
  host = await daemon.connect();
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

async function template(options: TemplateOptions = {}, on: Host = host): Promise<Checkpoint> {
  return await on.templates.create(await on.images.build(IMAGE), options);
}

describe("fork", () => {
  it("gives a sandbox with the files of the template, and writes in it stay its own (invariant 1)", async () => {
    const root = await template({ warmUp: (sandbox) => sandbox.files.write("/srv/note", "warm") });
    const [one, two] = [await root.fork(), await root.fork()];
    await one.files.append("/srv/note", " and changed");
    expect(Buffer.from(await one.files.read("/srv/note")).toString()).toBe("warm and changed");
    expect((await two.exec(["cat", "/srv/note"])).stdout).toBe("warm");
  });

  it("of a count gives one result a child, a failed one among them", async () => {
    const root = await template();
    daemon.inject({ method: "sandbox.fork", action: { kind: "failChild", index: 1 } });
    const results = await root.fork(3);
    expect(results.map((result) => result.ok)).toEqual([true, false, true]);
    expect(results[1]).toMatchObject({ error: { code: "FAULT_INJECTED", retryable: true } });
  });

  it("B24: of more than the host has room for says which were made, and goes on with those", async () => {
    const root = await template();
    daemon.state.maxSandboxes = 4;
    const results = await root.fork(10);
    expect(results.filter((result) => result.ok)).toHaveLength(4);
    expect(results.slice(4).every((result) => !result.ok && "code" in result.error)).toBe(true);
    for (const result of results) {
      if (result.ok) await result.sandbox.ping();
    }
  });

  it.each([0, -1, 1.5, 1e6, Number.NaN])("B24: of %d children is refused at once", async (count) => {
    const root = await template();
    await expect(root.fork(count)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", faultDomain: "user" });
    expect(daemon.calls).not.toContain("sandbox.fork");
  });

  it("B24: of a checkpoint that the host has lost is a final error", async () => {
    const root = await template();
    daemon.state.checkpoints.clear();
    await expect(root.fork()).rejects.toMatchObject({ code: "CHECKPOINT_NOT_FOUND", retryable: false });
  });

  it("aborted rejects, and no child stays", async () => {
    const root = await template();
    daemon.inject({ method: "sandbox.fork", action: { kind: "delay", ms: 30 } });
    await expect(root.fork(3, { signal: AbortSignal.timeout(5) })).rejects.toMatchObject({ code: "ABORTED" });
    await sleep(50);
    expect((await host.stats()).sandboxes.leased).toBe(0);
  });

  it("of a released checkpoint is refused", async () => {
    const root = await template();
    await root.release();
    await root.release();
    await expect(root.fork()).rejects.toMatchObject({ code: "CHECKPOINT_RELEASED" });
    expect(daemon.state.checkpoints.size).toBe(0);
  });

  it.each([
    ["", 1],
    ["cp-1", Number.NaN],
    ["cp-1", Number.POSITIVE_INFINITY],
    ["cp-1", -5],
  ])("with a forecast of %j, %d is refused", (checkpoint, weight) => {
    expect(() => host.pool.forecast(checkpoint, weight)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  it("with a forecast comes out of the warm pool, with an identity of its own", async () => {
    const root = await template();
    host.pool.forecast(root.id, 2);
    await vi.waitFor(() => expect(host.pool.stats().ready).toBe(2));
    const names = new Set<string>();
    for (let index = 0; index < 2; index += 1) {
      await using sandbox = await root.fork();
      names.add((await sandbox.exec(["hostname"])).stdout);
    }
    expect(names.size).toBe(2);
    expect(host.pool.stats()).toMatchObject({ hits: 2, misses: 0 });
    expect(daemon.calls.filter((call) => call === "sandbox.lease")).toHaveLength(2);
  });

  it("of a waiting child whose hand-out fails says so at the first use, and the next fork is well (invariant 4)", async () => {
    const root = await template();
    host.pool.forecast(root.id, 2);
    await vi.waitFor(() => expect(host.pool.stats().ready).toBe(2));
    const failure = { code: "HANDOUT_FAILED", poisons: true };
    daemon.inject({ method: "sandbox.lease", action: { kind: "fail", failure } });
    await using failed = await root.fork();
    await expect(failed.ping()).rejects.toMatchObject({ code: "HANDOUT_FAILED" });
    await expect(failed.ping()).rejects.toMatchObject({ code: "HANDOUT_FAILED" });
    await using sandbox = await root.fork();
    await sandbox.ping();
    expect(sandbox.stages).toEqual([["fake", 1]]);
    expect(host.pool.stats()).toMatchObject({ hits: 2, discards: 1 });
  });

  it("of waiting children gives none whose guest has ended", async () => {
    const root = await template();
    host.pool.forecast(root.id, 1);
    await vi.waitFor(() => expect(host.pool.stats().ready).toBe(1));
    host.pool.forecast(root.id, 0);
    const [waiting] = daemon.state.sandboxes.keys();
    daemon.endGuest(waiting ?? "");
    await vi.waitFor(() => expect(host.pool.ready(root.id)).toBe(0));
    await using sandbox = await root.fork();
    await sandbox.ping();
    expect(sandbox.id).not.toBe(waiting);
  });
});

describe("release", () => {
  it("of a checkpoint closes the children that wait for it, and leaves used ones alone", async () => {
    const root = await template();
    await using used = await root.fork();
    host.pool.forecast(root.id, 3);
    await vi.waitFor(() => expect(host.pool.stats().ready).toBe(3));
    await root.release();
    expect([...daemon.state.sandboxes.keys()]).toEqual([used.id]);
    await used.ping();
  });
});

describe("templates.create", () => {
  it("with a key that the host knows does not boot again", async () => {
    await template({ key: "game" });
    await using other = await daemon.connect();
    const known = await template({ key: "game" }, other);
    await using sandbox = await known.fork();
    await sandbox.ping();
    expect(daemon.state.counters.boots).toBe(1);
  });

  it.each([
    ["another key", { key: "other" }],
    ["another size", { key: "game", memoryMiB: 256 }],
    ["another disk", { key: "game", diskMiB: 64 }],
    ["no disk", { key: "game", diskMiB: 0 }],
    ["no key", {}],
  ])("with %s boots its own", async (_, options) => {
    await template({ key: "game" });
    await template(options);
    expect(daemon.state.counters.boots).toBe(2);
  });

  it("with sizes that are given as undefined has those of the defaults", async () => {
    await template({ key: "game" });
    await template({ key: "game", memoryMiB: undefined, vcpus: undefined, diskMiB: undefined } as object);
    expect(daemon.state.counters.boots).toBe(1);
  });

  it("by two clients at once ends with one template for both", async () => {
    await using other = await daemon.connect();
    const both = await Promise.all([template({ key: "game" }), template({ key: "game" }, other)]);
    expect(new Set(both.map((checkpoint) => checkpoint.id)).size).toBe(1);
    expect(daemon.state.checkpoints.size).toBe(1);
  });

  it("shared stays with the host when one client releases it and ends", async () => {
    const other = await daemon.connect();
    await (await template({ key: "game" }, other)).release();
    await other.close();
    await using sandbox = await (await template({ key: "game" })).fork();
    await sandbox.ping();
    expect(daemon.state.counters.boots).toBe(1);
  });

  it("whose warm-up throws gives the cause, and closes the sandbox", async () => {
    const cause = new Error("no such game");
    await expect(template({ warmUp: () => Promise.reject(cause) })).rejects.toMatchObject({
      code: "TEMPLATE_WARMUP_FAILED",
      faultDomain: "user",
      cause,
    });
    expect(daemon.state.sandboxes.size).toBe(0);
  });

  it("whose warm-up loses the guest blames the guest", async () => {
    daemon.inject({ method: "sandbox.call", action: { kind: "endGuest" } });
    await expect(template({ warmUp: (sandbox) => sandbox.ping() })).rejects.toMatchObject({
      code: "TEMPLATE_WARMUP_FAILED",
      faultDomain: "guest",
    });
  });

  it("aborted while the guest boots rejects, and no sandbox stays", async () => {
    daemon.inject({ method: "sandbox.boot", action: { kind: "delay", ms: 20 } });
    await expect(template({ signal: AbortSignal.timeout(5) })).rejects.toMatchObject({ code: "ABORTED" });
    await sleep(40);
    expect(daemon.state.sandboxes.size).toBe(0);
  });

  it.each([
    ["too little memory", { memoryMiB: 32 }, "options.memoryMiB"],
    ["half a CPU", { vcpus: 0.5 }, "options.vcpus"],
    ["no CPU", { vcpus: 0 }, "options.vcpus"],
    ["more CPUs than a guest can have", { vcpus: 5 }, "options.vcpus"],
    ["hardly a disk", { diskMiB: 15 }, "options.diskMiB"],
    ["an empty key", { key: "" }, "options.key"],
    ["a warm-up that is no function", { warmUp: "start" }, "options.warmUp"],
  ])("with %s is refused and names the field", async (_, options, field) => {
    await expect(template(options as TemplateOptions)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(`\`${field}\``),
    });
  });

  it("of an image that the host does not have says so", async () => {
    await expect(host.templates.create({ id: "sha256:0" })).rejects.toMatchObject({ code: "IMAGE_NOT_FOUND" });
  });
});

describe("a session", () => {
  it("joined by another connection gives handles on what it owns", async () => {
    const root = await template();
    await using sandbox = await root.fork();
    await sandbox.files.write("/a", "1");
    await using joined = await connectHost({ join: host.address, imageBuilder: fakeImageBuilder });
    expect(Buffer.from(await joined.sandboxes.get(sandbox.id).files.read("/a")).toString()).toBe("1");
    await using sibling = await joined.checkpoints.get(root.id).fork();
    await expect(sibling.files.read("/a")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
  });

  it("is closed by the host with its last connection, not before", async () => {
    const root = await template();
    await root.fork();
    const joined = await connectHost({ join: host.address });
    await host.close();
    expect((await joined.stats()).sandboxes.leased).toBe(1);
    await joined.close();
    await vi.waitFor(() => expect(daemon.state.sandboxes.size + daemon.state.checkpoints.size).toBe(0));
  });

  it("that has ended can't be joined", async () => {
    const { address } = host;
    await host.close();
    await vi.waitFor(() =>
      expect(connectHost({ join: address })).rejects.toMatchObject({ code: "SESSION_NOT_FOUND", faultDomain: "user" }),
    );
  });
});

describe("a host", () => {
  it("closed refuses what comes after, and closes again without complaint", async () => {
    const root = await template();
    const sandbox = await root.fork();
    await host.close();
    await host.close();
    await expect(host.stats()).rejects.toMatchObject({ code: "HOST_CLOSED" });
    await expect(host.ended).resolves.toMatchObject({ code: "HOST_CLOSED" });
    await expect(sandbox.ping()).rejects.toMatchObject({ code: "HOST_CLOSED" });
    await expect(root.fork()).rejects.toMatchObject({ code: "HOST_CLOSED" });
    await sandbox.close();
    await root.release();
  });

  it("that dies fails what waits for it, and forks say that it is lost", async () => {
    const root = await template();
    const sandbox = await root.fork();
    const pending = expect(sandbox.exec(["sleep", "10000"])).rejects.toMatchObject({ code: "HOST_LOST" });
    daemon.dropConnections();
    await pending;
    await expect(root.fork()).rejects.toMatchObject({ code: "HOST_LOST", retryable: true });
    await expect(host.ended).resolves.toMatchObject({ code: "HOST_LOST" });
  });

  it("gives its metrics as the daemon wrote them", async () => {
    await expect(host.metrics()).resolves.toBe("coppice_boots_total 0\n");
  });

  it("tells what it is and what it does", async () => {
    const root = await template();
    await using sandbox: Sandbox = await root.fork();
    expect(host.info).toMatchObject({ kind: "kvm", version: "fake" });
    expect((await host.stats()).sandboxes.leased).toBe(1);
    expect(await host.memoryUsage({ sandbox: sandbox.id })).toEqual({
      privateBytes: 4_096,
      totalBytes: 8_192,
      diskBytes: 12_288,
    });
  });
});
