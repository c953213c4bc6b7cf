import { Writable } from "node:stream";

import { describe, expect, it } from "vitest";

import { isClosedPipe, watchOutput, writeStream } from "./output.js";

/** Takes nothing. */
function broken(code: string): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => done(Object.assign(new Error(`${code}: no`), { code })),
  });
}

const sound = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() });

describe("output that can't be written", () => {
  it("ends the command with a typed error, known when all is flushed", async () => {
    const stdout = broken("ENOSPC");
    const output = watchOutput(stdout, sound());
    stdout.write("result");
    await output.flushed();
    expect(output.failure).toMatchObject({ code: "OUTPUT_FAILED", message: "stdout can not be written: ENOSPC: no" });
    expect(output.signal.reason).toBe(output.failure);
    expect(isClosedPipe(output.failure)).toBe(false);
  });

  it("because its reader has left is told apart", async () => {
    const stdout = broken("EPIPE");
    const output = watchOutput(stdout, sound());
    stdout.write("result");
    await output.flushed();
    expect(isClosedPipe(output.failure)).toBe(true);
  });

  it("fails the write of a piece", async () => {
    const stdout = broken("EPIPE");
    watchOutput(stdout, sound());
    const writing = writeStream(stdout, "stdout", Buffer.from("x"));
    await expect(writing).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
  });

  it("on stderr is no reason to end", async () => {
    const stderr = broken("ENOSPC");
    const output = watchOutput(sound(), stderr);
    stderr.write("how it goes");
    await output.flushed();
    expect(output.signal.aborted).toBe(false);
  });
});
