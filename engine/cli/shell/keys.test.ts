import { describe, expect, it } from "vitest";

import { KeyReader } from "./keys.js";

/** Text as text, commands in angle brackets. */
function read(reader: KeyReader, text: string): string {
  const typed = reader.read(Buffer.from(text, "latin1"));
  return typed
    .map((one) => (one.kind === "text" ? Buffer.from(one.bytes).toString("latin1") : `<${one.key}>`))
    .join("");
}

describe("keys of a shell", () => {
  it.each([
    ["ls -l\r", "ls -l\r"],
    ["a\x1dcb", "a<c>b"],
    ["\x1dF", "<f>"],
    ["\x1dc\x1df", "<c><f>"],
    ["a\x1d\x1db", "a\x1db"],
    ["\x03\xff", "\x03\xff"],
    ["", ""],
  ])("%j are %j", (typed, expected) => {
    expect(read(new KeyReader(), typed)).toBe(expected);
  });

  it("are the same however they are cut into pieces", () => {
    const keys = "a\x1dcb\x1d\x1d\x1dq";
    const reader = new KeyReader();
    expect([...keys].map((key) => read(reader, key)).join("")).toBe(read(new KeyReader(), keys));
  });
});
