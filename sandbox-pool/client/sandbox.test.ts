import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { FakeProgram } from "../../test/fakes/fake-guest.js";
import type { Checkpoint, ExecOptions, Host, Sandbox } from "../api.js";

/** Counts the lines that it was given. */
const counter: FakeProgram = {
  start: () => ({ state: 0, text: "ready\n> " }),
  input: (state, line) => {
    const count = Number(state) + 1;
    return line === "quit"
      ? { state: count, text: "bye\n", exitCode: 3 }
      : { state: count, text: `${count}: ${line}\n> ` };
  },
};

let daemon: FakeDaemon;
let host: Host;
let root: Checkpoint;

beforeEach(async () => {
  daemon = await startFakeDaemon({
    programs: { counter },
    commands: {
      both: () => ({ stdout: "out", stderr: "err", exitCode: 2 }),
      bats: () => ({ stdout: "\u{1f987}".repeat(40_000) }),
      bytes: () => ({ stdout: Uint8Array.from([0xff, 0x00, 0xfe]) }),
    },
  });
  host = await daemon.connect();
  root = await host.templates.create(await host.images.build({ debian: {} }));
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

describe("exec", () => {
  it("gives both streams and the exit code", async () => {
    await using sandbox = await root.fork();
    expect(await sandbox.exec(["both"])).toMatchObject({
      stdout: "out",
      stderr: "err",
      exitCode: 2,
      signal: null,
      timedOut: false,
      truncated: false,
    });
  });

  it("of characters that are cut by chunks gives the text whole (B44)", async () => {
    await using sandbox = await root.fork();
    expect((await sandbox.exec(["bats"])).stdout).toBe("\u{1f987}".repeat(40_000));
  });

  it("of bytes that are no text gives the bytes exactly", async () => {
    await using sandbox = await root.fork();
    const result = await sandbox.exec(["bytes"]);
    expect([...result.stdoutBytes]).toEqual([0xff, 0x00, 0xfe]);
    expect(result.stdout).toBe("\u{fffd}\0\u{fffd}");
  });

  it("passes stdin, as text or bytes", async () => {
    await using sandbox = await root.fork();
    expect((await sandbox.exec(["cat"], { stdin: "über" })).stdout).toBe("über");
    expect([...(await sandbox.exec(["cat"], { stdin: Uint8Array.of(0, 255) })).stdoutBytes]).toEqual([0, 255]);
  });

  it("above its limit of output is cut and says so", async () => {
    await using sandbox = await root.fork();
    const result = await sandbox.exec(["bats"], { outputLimitBytes: 8 });
    expect(result).toMatchObject({ stdout: "\u{1f987}\u{1f987}", truncated: true });
  });

  it("above its time is killed and says so", async () => {
    await using sandbox = await root.fork();
    expect(await sandbox.exec(["sleep", "5000"], { timeoutMs: 20 })).toMatchObject({
      timedOut: true,
      exitCode: null,
      signal: "SIGKILL",
    });
  });

  it("aborted rejects, and the sandbox goes on", async () => {
    await using sandbox = await root.fork();
    const call = sandbox.exec(["sleep", "5000"], { signal: AbortSignal.timeout(10) });
    await expect(call).rejects.toMatchObject({ code: "ABORTED" });
    expect((await sandbox.exec(["echo", "on"])).stdout).toBe("on\n");
  });

  it.each([
    ["no program", [], {}, "argv"],
    ["an argument that is no text", ["a", 1], {}, "argv.1"],
    ["a NUL character", ["a\0b"], {}, "argv.0"],
    ["a variable with '=' in its name", ["a"], { env: { "A=B": "1" } }, "options.env.A=B"],
    ["a variable named __proto__", ["a"], { env: JSON.parse('{"__proto__":"1"}') }, "params.args.env.__proto__"],
    ["a relative directory", ["a"], { cwd: "srv" }, "options.cwd"],
    ["no time", ["a"], { timeoutMs: 0 }, "options.timeoutMs"],
    ["a deadline in the past", ["a"], { deadlineMs: -1 }, "options.deadlineMs"],
    ["an option that does not exist", ["a"], { timeout: 5 }, "options"],
  ])("with %s is refused before anything is sent", async (_, argv, options, field) => {
    await using sandbox = await root.fork();
    const calls = daemon.calls.length;
    await expect(sandbox.exec(argv as string[], options as ExecOptions)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(`\`${field}`),
      remedy: expect.any(String),
    });
    expect(daemon.calls).toHaveLength(calls);
  });
});

describe("pty", () => {
  it("opened before a fork lives on in each child by itself", async () => {
    await using parent = await root.fork();
    const game = await parent.openPty(["counter"], { name: "game" });
    expect((await game.read().untilInput()).text).toBe("ready\n> ");
    expect((await game.send("north\n").untilInput()).text).toBe("1: north\n> ");
    const checkpoint = await parent.park();
    const [one, two] = [await checkpoint.fork(), await checkpoint.fork()];
    expect((await one.pty("game").send("a\nb\n").untilQuiet({ quietMs: 1 })).text).toBe("2: a\n> 3: b\n> ");
    expect((await two.pty("game").send("c\n").until(/> $/)).text).toBe("2: c\n> ");
  });

  it("whose program ends says how", async () => {
    await using sandbox = await root.fork();
    const game = await sandbox.openPty(["counter"], { name: "game" });
    expect(await game.send("quit\n").untilInput()).toMatchObject({
      reason: "exit",
      exit: { exitCode: 3, signal: null },
    });
  });

  it("exchange is sent once, by the condition that is chosen", async () => {
    await using sandbox = await root.fork();
    const game = await sandbox.openPty(["counter"], { name: "game" });
    const exchange = game.send("north\n");
    await exchange.untilInput();
    await expect(exchange.untilQuiet()).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("with a pattern that the guest does not have is refused", async () => {
    await using sandbox = await root.fork();
    await expect(sandbox.pty("game").read().until(/(?=x)/)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });
});

describe("files", () => {
  it("written are read back byte for byte, and can be listed, appended and removed", async () => {
    await using sandbox = await root.fork();
    const data = Uint8Array.from({ length: 200_000 }, (_, index) => index % 251);
    await sandbox.files.write("/srv/data", data);
    await sandbox.files.append("/srv/data", "end");
    const read = await sandbox.files.read("/srv/data");
    expect(Buffer.compare(read, Buffer.concat([data, Buffer.from("end")]))).toBe(0);
    expect(await sandbox.files.list("/srv")).toEqual([{ name: "data", kind: "file" }]);
    await sandbox.files.remove("/srv/data");
    await expect(sandbox.files.read("/srv/data")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
  });

  it.each(["", "relative", "/nul\0"])("at %j are refused", async (path) => {
    await using sandbox = await root.fork();
    await expect(sandbox.files.read(path)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("larger than a frame are refused with a way out", async () => {
    await using sandbox = await root.fork();
    await expect(sandbox.files.write("/big", new Uint8Array(16 * 1024 * 1024))).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("files.append"),
    });
  });
});

describe("a sandbox", () => {
  /** Everything that a user can call on it. */
  const uses: readonly [string, (sandbox: Sandbox) => Promise<unknown>][] = [
    ["exec", (sandbox) => sandbox.exec(["true"])],
    ["openPty", (sandbox) => sandbox.openPty(["counter"], { name: "game" })],
    ["pty().send", (sandbox) => sandbox.pty("game").read().untilInput()],
    ["files.read", (sandbox) => sandbox.files.read("/a")],
    ["ping", (sandbox) => sandbox.ping()],
    ["park", (sandbox) => sandbox.park()],
    ["checkpoint", (sandbox) => sandbox.checkpoint()],
    ["console", (sandbox) => sandbox.console()],
  ];

  it.each(uses)("refuses %s after close", async (_, use) => {
    const sandbox = await root.fork();
    await sandbox.close();
    await expect(use(sandbox)).rejects.toMatchObject({ code: "SANDBOX_CLOSED", faultDomain: "user" });
  });

  it.each(uses)("refuses %s after park", async (_, use) => {
    const sandbox = await root.fork();
    await sandbox.park();
    await expect(use(sandbox)).rejects.toMatchObject({ code: "SANDBOX_CLOSED" });
  });

  it("is gone from the host after its scope, and closing it again does nothing", async () => {
    let kept: Sandbox;
    {
      await using sandbox = await root.fork();
      kept = sandbox;
    }
    expect(daemon.state.sandboxes.size).toBe(0);
    await kept.close();
    expect(daemon.calls.filter((call) => call === "sandbox.close")).toHaveLength(1);
  });

  it("that failed in a way that may have damaged it can only be closed (invariant 8)", async () => {
    const sandbox = await root.fork();
    daemon.inject({ method: "sandbox.call", action: { kind: "fail", failure: { poisons: true } } });
    await expect(sandbox.ping()).rejects.toMatchObject({ poisons: true });
    await expect(sandbox.park()).rejects.toMatchObject({ code: "SANDBOX_POISONED" });
    await sandbox.close();
    expect(daemon.state.sandboxes.size).toBe(0);
  });

  it("whose guest has ended says so, in the call and after it", async () => {
    const sandbox = await root.fork();
    daemon.endGuest(sandbox.id);
    await vi.waitFor(() =>
      expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_LOST", faultDomain: "guest" }),
    );
    await sandbox.close();
  });

  it("goes on after a checkpoint, which has what it had and nothing later", async () => {
    await using sandbox = await root.fork();
    const game = await sandbox.openPty(["counter"], { name: "game" });
    await game.send("north\n").untilInput();
    await using checkpoint = await sandbox.checkpoint({ name: "here" });
    expect((await game.send("on\n").untilInput()).text).toBe("2: on\n> ");
    await using fork = await checkpoint.fork();
    expect((await fork.pty("game").send("elsewhere\n").untilInput()).text).toBe("2: elsewhere\n> ");
  });

  it.each([
    ["is refused", {}, true],
    ["may have damaged it", { poisons: true }, false],
  ])("whose checkpoint %s goes on only where that is safe (invariant 8)", async (_, failure, goesOn) => {
    await using sandbox = await root.fork();
    daemon.inject({ method: "sandbox.checkpoint", action: { kind: "fail", failure } });
    await expect(sandbox.checkpoint()).rejects.toMatchObject({ code: "FAULT_INJECTED" });
    if (goesOn) await sandbox.ping();
    else await expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_POISONED" });
  });

  it("whose guest has ended gives the end of its console, until it is rewound", async () => {
    await using sandbox = await root.fork();
    daemon.endGuest(sandbox.id);
    await vi.waitFor(() => expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_LOST" }));
    const failure = { code: "SANDBOX_LOST", poisons: true };
    daemon.inject({ method: "sandbox.console", action: { kind: "fail", failure } });
    expect(await sandbox.console()).toBe("Power down\n");
    await sandbox.rewind();
    expect(await sandbox.console()).toContain(sandbox.id);
  });

  it("that is rewound has what its checkpoint had, and the handle stands for a new life", async () => {
    await using sandbox = await root.fork();
    const first = sandbox.id;
    await sandbox.files.write("/a", "later");
    expect(await sandbox.rewind()).toEqual({ how: "cold-fork" });
    expect(sandbox.id).not.toBe(first);
    await expect(sandbox.files.read("/a")).rejects.toThrow();
    await vi.waitFor(() => expect(daemon.state.sandboxes.has(first)).toBe(false));
    await sandbox.files.write("/b", "kept");
    await using checkpoint = await sandbox.checkpoint();
    await sandbox.files.remove("/b");
    expect(await sandbox.rewind({ to: checkpoint, prefer: "in-place" })).toEqual({ how: "cold-fork" });
    expect(Buffer.from(await sandbox.files.read("/b")).toString()).toBe("kept");
    expect(daemon.state.sandboxes.size).toBe(1);
  });

  it("that may be damaged, or whose guest has ended, can be rewound (invariant 8)", async () => {
    await using sandbox = await root.fork();
    daemon.inject({ method: "sandbox.call", action: { kind: "fail", failure: { poisons: true } } });
    await expect(sandbox.ping()).rejects.toMatchObject({ poisons: true });
    await sandbox.rewind();
    await sandbox.ping();
    daemon.endGuest(sandbox.id);
    await vi.waitFor(() => expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_LOST" }));
    await sandbox.rewind();
    await sandbox.ping();
  });

  it("that is rewound again goes back in place, as the same sandbox and a new life", async () => {
    await using sandbox = await root.fork();
    await sandbox.rewind();
    const { id } = sandbox;
    const bootId = () => daemon.state.sandboxes.get(id)?.identity.bootId;
    const before = bootId();
    await sandbox.files.write("/a", "later");
    expect(await sandbox.rewind({ prefer: "in-place" })).toEqual({ how: "in-place", dirtyPages: 3 });
    expect(sandbox.id).toBe(id);
    expect(bootId()).not.toBe(before);
    await expect(sandbox.files.read("/a")).rejects.toThrow();
    await sandbox.ping();
    expect(await sandbox.rewind({ prefer: "fork" })).toMatchObject({ how: expect.stringMatching(/-fork$/) });
    expect(sandbox.id).not.toBe(id);
  });

  it("that can't go back in place gets another life, and what may be damaged never stays", async () => {
    await using sandbox = await root.fork();
    await sandbox.rewind();
    const failure = { code: "REWIND_FAILED", poisons: true };
    daemon.inject({ method: "sandbox.rewind", action: { kind: "fail", failure } });
    expect(await sandbox.rewind({ prefer: "in-place" })).toMatchObject({ how: expect.stringMatching(/-fork$/) });
    daemon.inject({ method: "sandbox.call", action: { kind: "fail", failure: { poisons: true } } });
    await expect(sandbox.ping()).rejects.toMatchObject({ poisons: true });
    expect(await sandbox.rewind({ prefer: "in-place" })).toMatchObject({ how: expect.stringMatching(/-fork$/) });
    await sandbox.ping();
  });

  it("whose rewind is given up before it was asked for goes on", async () => {
    await using sandbox = await root.fork();
    await sandbox.rewind();
    const given = sandbox.rewind({ prefer: "in-place", signal: AbortSignal.abort() });
    await expect(given).rejects.toMatchObject({ code: "ABORTED" });
    await sandbox.ping();
  });

  it("whose rewind in place is given up can only be rewound or closed: nobody knows what it is", async () => {
    await using sandbox = await root.fork();
    await sandbox.rewind();
    daemon.inject({ method: "sandbox.rewind", action: { kind: "delay", ms: 50 } });
    const given = sandbox.rewind({ prefer: "in-place", signal: AbortSignal.timeout(5) });
    await expect(given).rejects.toMatchObject({ code: "ABORTED" });
    await expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_POISONED" });
    await sandbox.rewind();
    await sandbox.ping();
  });

  it("whose rewind fails stays as it was, and takes nothing else meanwhile", async () => {
    await using sandbox = await root.fork();
    const { id } = sandbox;
    daemon.inject({ method: "sandbox.fork", action: { kind: "fail" } });
    const rewind = sandbox.rewind();
    await expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_BUSY", retryable: true });
    await expect(rewind).rejects.toMatchObject({ code: "FAULT_INJECTED" });
    await sandbox.ping();
    expect(sandbox.id).toBe(id);
  });

  it("that is rewound twice at once refuses the second, whatever becomes of the guest meanwhile", async () => {
    await using sandbox = await root.fork();
    daemon.inject({ method: "sandbox.fork", action: { kind: "delay", ms: 20 } });
    const first = sandbox.rewind();
    daemon.endGuest(sandbox.id);
    await new Promise((resolve) => setTimeout(resolve, 5));
    await expect(sandbox.rewind()).rejects.toMatchObject({ code: "SANDBOX_BUSY" });
    await first;
    await sandbox.ping();
  });

  it("that is closed while it is rewound leaves neither life behind", async () => {
    const sandbox = await root.fork();
    daemon.inject({ method: "sandbox.fork", action: { kind: "delay", ms: 20 } });
    const rewind = sandbox.rewind();
    await sandbox.close();
    await expect(rewind).rejects.toMatchObject({ code: "SANDBOX_CLOSED" });
    await vi.waitFor(() => expect(daemon.state.sandboxes.size).toBe(0));
  });

  it("whose park is refused goes on", async () => {
    await using sandbox = await root.fork();
    daemon.inject({ method: "sandbox.park", action: { kind: "fail" } });
    await expect(sandbox.park()).rejects.toMatchObject({ code: "FAULT_INJECTED" });
    await sandbox.ping();
  });

  it("whose park is aborted is closed, and no checkpoint stays", async () => {
    const sandbox = await root.fork();
    const before = daemon.state.checkpoints.size;
    daemon.inject({ method: "sandbox.park", action: { kind: "delay", ms: 30 } });
    await expect(sandbox.park({ signal: AbortSignal.timeout(5) })).rejects.toMatchObject({ code: "ABORTED" });
    await expect(sandbox.ping()).rejects.toMatchObject({ code: "SANDBOX_CLOSED" });
    await vi.waitFor(() => expect(daemon.state.sandboxes.size).toBe(0));
    expect(daemon.state.checkpoints.size).toBe(before);
  });

  it("of a lost host rejects as retryable, and closes without complaint", async () => {
    const sandbox = await root.fork();
    daemon.dropConnections();
    await expect(sandbox.ping()).rejects.toMatchObject({ code: "HOST_LOST", retryable: true });
    await sandbox.close();
    await root.release();
  });

  it("gives its console", async () => {
    await using sandbox = await root.fork();
    expect(await sandbox.console()).toContain(sandbox.id);
  });
});
