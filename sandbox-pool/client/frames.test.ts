import { describe, expect, it } from "vitest";

import { MAX_FRAME_BYTES } from "./codec.js";
import { FrameReader, frame } from "./frames.js";

function readAll(reader: FrameReader): string[] {
  const payloads: string[] = [];
  for (let payload = reader.next(); payload !== undefined; payload = reader.next()) {
    payloads.push(payload.toString());
  }
  return payloads;
}

const STREAM = Buffer.concat(["one", "", "three"].map((text) => frame(Buffer.from(text))));

describe("FrameReader", () => {
  it.each([1, 2, 3, 5, 7, STREAM.length])("given pieces of %d bytes returns the frames whole", (size) => {
    const reader = new FrameReader();
    const payloads: string[] = [];
    for (let offset = 0; offset < STREAM.length; offset += size) {
      reader.push(STREAM.subarray(offset, offset + size));
      payloads.push(...readAll(reader));
    }
    expect(payloads).toEqual(["one", "", "three"]);
    expect(reader.isMidFrame).toBe(false);
  });

  it("given a part of a frame says that one has begun", () => {
    const reader = new FrameReader();
    reader.push(STREAM.subarray(0, 5));
    expect(readAll(reader)).toEqual([]);
    expect(reader.isMidFrame).toBe(true);
  });

  it("given a prefix over the limit refuses before the payload arrives", () => {
    const reader = new FrameReader();
    const prefix = Buffer.alloc(4);
    prefix.writeUInt32LE(MAX_FRAME_BYTES + 1);
    reader.push(prefix);
    expect(() => reader.next()).toThrow(expect.objectContaining({ code: "PROTOCOL_VIOLATION" }));
  });
});
