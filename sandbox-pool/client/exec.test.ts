import { createReadStream } from "node:fs";
import { PassThrough } from "node:stream";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { FakeCommand } from "../../test/fakes/fake-guest.js";
import type { Host, Sandbox } from "../api.js";
import { OutputSink } from "./output-sink.js";

let daemon: FakeDaemon;
let host: Host;
let sandbox: Sandbox;
let commands: Record<string, FakeCommand>;

beforeEach(async () => {
  commands = {
    both: () => ({ stdout: "out".repeat(50_000), stderr: "err" }),
    "/bin/sh": ({ argv }) => ({ stdout: argv.slice(1).join("|") }),
  };
  daemon = await startFakeDaemon({ commands });
  host = await daemon.connect();
  sandbox = await (await host.templates.create(await host.images.build({ debian: {} }))).fork();
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

describe("exec", () => {
  it("of a text is the guest's shell with it", async () => {
    expect((await sandbox.exec("echo $HOME | wc")).stdout).toBe("-c|echo $HOME | wc");
  });

  it("with a callback gives that stream away, in order, and collects the other", async () => {
    const pieces: Uint8Array[] = [];
    // Every second one takes longer than the next: the order must come from the sink.
    let count = 0;
    const onStdout = async (piece: Uint8Array): Promise<void> => {
      count += 1;
      await new Promise((resolve) => setTimeout(resolve, count % 2 === 0 ? 0 : 5));
      pieces.push(piece);
    };
    const result = await sandbox.exec(["both"], { onStdout });
    expect(Buffer.concat(pieces).toString()).toBe("out".repeat(50_000));
    expect(result).toMatchObject({ stdout: "", stderr: "err", exitCode: 0, droppedBytes: 0 });
  });

  it("keeps as much as its limit allows also where it has a name", async () => {
    const stdout = "x".repeat(17 * 1_048_576);
    commands["big"] = () => ({ stdout });
    const result = await sandbox.exec(["big"], { name: "big", outputLimitBytes: 32 * 1_048_576 });
    expect([result.stdoutBytes.length, result.droppedBytes]).toEqual([stdout.length, 0]);
  });

  it("lets go of a stdin that is never closed", async () => {
    const stdin = new PassThrough();
    await sandbox.exec(["both"], { stdin });
    expect(stdin.destroyed).toBe(true);
  });

  it("survives a stdin that can't be opened where the program never starts", async () => {
    const stdin = createReadStream("/nowhere/at/all");
    const closed = new Promise<void>((resolve) => stdin.once("close", () => resolve()));
    // Without a listener the stream's `error` event, which comes meanwhile, would end the process.
    await expect(sandbox.exec(["missing"], { stdin })).rejects.toMatchObject({ code: "EXEC_FAILED" });
    await closed;
  });

  it("fails when a guest sends its callback more than it was granted", async () => {
    commands["flood"] = () => ({ stdout: "x".repeat(4 * 1_048_576) });
    const onStdout = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));
    await expect(sandbox.exec(["flood"], { onStdout })).rejects.toMatchObject({
      code: "GUEST_MISBEHAVED",
      faultDomain: "guest",
    });
  });

  it("rejects with what a callback throws", async () => {
    const onStderr = (): never => {
      throw new Error("enough");
    };
    await expect(sandbox.exec(["both"], { onStderr })).rejects.toThrow("enough");
  });

  it.each([
    [{ user: "a:b:c" }, "options.user"],
    [{ user: "" }, "options.user"],
    [{ stdin: 5 }, "options.stdin"],
    [{ onStdout: "x" }, "options.onStdout"],
    [{ background: true, outputLimitBytes: 2 ** 30 }, "options.outputLimitBytes"],
  ])("with the options %j names what is wrong", async (options, field) => {
    await expect(sandbox.exec(["true"], options as object)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(field) as string,
    });
  });
});

describe("the sink of a program's output", () => {
  const chunk = (stream: string, length: number) => ({ stream, data: new Uint8Array(length) });
  const signal = new AbortController().signal;

  it("grants what is done with, and nothing while a callback waits", async () => {
    const granted: number[] = [];
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const sink = new OutputSink({
      output: { onStdout: () => held },
      limitBytes: 1,
      grant: (bytes) => granted.push(bytes),
      onFailure: () => undefined,
    });
    sink.take(chunk("stdout", 400_000));
    await new Promise((resolve) => setImmediate(resolve));
    expect(granted).toEqual([]);
    release();
    await sink.drained(signal);
    expect(granted).toEqual([400_000]);
  });

  it("keeps a bounded part of a stream without callback, and counts the rest", () => {
    const output = {};
    const sink = new OutputSink({ output, limitBytes: 1_500, grant: () => undefined, onFailure: () => undefined });
    for (let count = 0; count < 3; count++) sink.take(chunk("stderr", 1_000));
    expect(sink.collected("stderr").length).toBe(1_500);
    expect(sink.droppedBytes).toBe(1_500);
  });

  it("fails once when a guest sends more than the window and one chunk, and takes no more", () => {
    const failures: unknown[] = [];
    const sink = new OutputSink({
      output: { onStdout: () => new Promise<void>(() => undefined) },
      limitBytes: 1,
      grant: () => undefined,
      onFailure: (error) => failures.push(error),
    });
    for (let count = 0; count < 17; count++) sink.take(chunk("stdout", 65_536));
    expect(failures).toEqual([]);
    sink.take(chunk("stdout", 1));
    sink.take(chunk("stdout", 65_536));
    expect(failures).toEqual([expect.objectContaining({ code: "GUEST_MISBEHAVED", faultDomain: "guest" })]);
  });

  it("gives small chunks that wait together, in their order between the streams", async () => {
    const given: string[] = [];
    const note =
      (stream: string) =>
      (piece: Uint8Array): void =>
        void given.push(`${stream}:${Buffer.from(piece).toString()}`);
    const sink = new OutputSink({
      output: { onStdout: note("out"), onStderr: note("err") },
      limitBytes: 1,
      grant: () => undefined,
      onFailure: () => undefined,
    });
    for (const text of ["a", "bc", "", "d"]) sink.take({ stream: "stdout", data: Buffer.from(text) });
    for (const stream of ["stderr", "stdout"]) sink.take({ stream, data: Buffer.from("e") });
    await sink.drained(signal);
    expect(given).toEqual(["out:abcd", "err:e", "out:e"]);
  });

  it("that is closed begins no callback and grants nothing", async () => {
    const seen: unknown[] = [];
    const sink = new OutputSink({
      output: { onStdout: (piece) => void seen.push(piece) },
      limitBytes: 1,
      grant: (bytes) => seen.push(bytes),
      onFailure: (error) => seen.push(error),
    });
    sink.take(chunk("stdout", 400_000));
    sink.close();
    await sink.drained(signal);
    expect(seen).toEqual([]);
  });
});
