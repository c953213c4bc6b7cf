import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { Host, Sandbox } from "../api.js";
import { OutputSink } from "./output-sink.js";

let daemon: FakeDaemon;
let host: Host;
let sandbox: Sandbox;

beforeEach(async () => {
  daemon = await startFakeDaemon({
    commands: {
      both: () => ({ stdout: "out".repeat(50_000), stderr: "err" }),
      "/bin/sh": ({ argv }) => ({ stdout: argv.slice(1).join("|") }),
    },
  });
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
    const onStdout = async (piece: Uint8Array): Promise<void> => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      pieces.push(piece);
    };
    const result = await sandbox.exec(["both"], { onStdout });
    expect(Buffer.concat(pieces).toString()).toBe("out".repeat(50_000));
    expect(result).toMatchObject({ stdout: "", stderr: "err", exitCode: 0, droppedBytes: 0 });
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
    const sink = new OutputSink({ output: {}, grant: () => undefined, onFailure: () => undefined });
    for (let count = 0; count < 20; count++) sink.take(chunk("stderr", 1_048_576));
    expect(sink.collected("stderr").length).toBe(16 * 1_048_576);
    expect(sink.droppedBytes).toBe(4 * 1_048_576);
  });
});
