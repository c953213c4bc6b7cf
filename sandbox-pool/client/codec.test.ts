import fc from "fast-check";
import { Packr } from "msgpackr";
import { describe, expect, it } from "vitest";

import { decode, encode, MAX_FRAME_BYTES, MAX_NESTING } from "./codec.js";

describe("encode then decode", () => {
  it.each([
    ["null and booleans", [null, true, false]],
    ["small and negative integers", [0, 1, -1, 127, 128, -129, 65_536, 2 ** 31, -(2 ** 31), 2 ** 32]],
    ["the largest safe integers", [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]],
    ["nanoseconds above 2^53", [1_790_000_000_123_456_789n, 2n ** 63n - 1n, 2n ** 64n - 1n, -(2n ** 63n)]],
    ["fractions", [0.5, -1e-9, 1234.5678]],
    ["keys that objects have already", { constructor: 1, prototype: 2, toString: 3, hasOwnProperty: 4, "": 5 }],
    ["keys with NUL, dots and slashes", { "a\0b": 1, "a.b": 2, "a/b": 3 }],
    ["text beyond the basic plane", "Höhle \u{1f987}\n"],
  ])("keeps %s", (_, value) => {
    expect(decode(encode(value))).toEqual(value);
  });

  it("keeps binary data, whatever view it comes in", () => {
    const whole = Uint8Array.from([0, 1, 2, 3, 255]);
    const decoded = decode(encode({ data: whole.subarray(1, 4) })) as { data: Uint8Array };
    expect(Buffer.from(decoded.data)).toEqual(Buffer.from([1, 2, 3]));
  });

  it("keeps 70,000 keys, which need the largest map form (B52)", () => {
    const value = Object.fromEntries(Array.from({ length: 70_000 }, (_, index) => [`k${index}`, index]));
    expect(decode(encode(value))).toEqual(value);
  });

  it("keeps any plain value, or refuses it when it is encoded", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        let payload: Buffer;
        try {
          payload = encode(value);
        } catch (error) {
          expect(error).toMatchObject({ code: "INVALID_ARGUMENT" });
          return;
        }
        // The sign of zero is not a difference that anybody sends here.
        expect(decode(payload)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it("leaves out members that are undefined", () => {
    expect(decode(encode({ a: 1, b: undefined }))).toEqual({ a: 1 });
  });
});

describe("encode", () => {
  it.each([
    ["a key that would be renamed (B53)", { params: { env: JSON.parse('{"__proto__":1}') } }, "params.env.__proto__"],
    ["NaN", { list: [1, Number.NaN] }, "list[1]"],
    ["an integer that is not exact", { at: 2 ** 60 }, "at"],
    ["an integer of 65 bits", { at: 2n ** 64n }, "at"],
    ["half of a surrogate pair", { text: "a\ud800" }, "text"],
    ["a Date", { at: new Date(0) }, "at"],
    ["a Map", { map: new Map() }, "map"],
    ["a Set", { set: new Set([1]) }, "set"],
    ["a function", { call: () => 1 }, "call"],
    ["undefined in a list", { list: [undefined] }, "list[0]"],
  ])("refuses %s and says where it is", (_, value, path) => {
    expect(() => encode(value)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(`\`${path}\``) }),
    );
  });

  it("refuses a value that contains itself", () => {
    const value: Record<string, unknown> = {};
    value["self"] = value;
    expect(() => encode(value)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  it("refuses a message over the frame limit", () => {
    expect(() => encode({ data: new Uint8Array(MAX_FRAME_BYTES) })).toThrow(
      expect.objectContaining({ code: "FRAME_TOO_LARGE" }),
    );
  });
});

describe("decode", () => {
  it.each([
    ["nothing", new Uint8Array()],
    ["a cut message", encode({ a: "text" }).subarray(0, 4)],
    ["two messages in one frame", Buffer.concat([encode(1), encode(2)])],
    ["nesting over the limit", Buffer.from([...Array(MAX_NESTING + 1).fill(0x91), 0xc0])],
    ["nesting that would exhaust the stack", Buffer.alloc(1_000_000, 0x91)],
    ["a key that would be renamed", Buffer.from([0x81, 0xa9, ...Buffer.from("__proto__"), 0x01])],
    ["a key that is no string", Buffer.from([0x81, 0x01, 0x01])],
    ["an extension", new Packr({ moreTypes: true }).pack({ set: new Set([1]) })],
    ["a timestamp", Buffer.from([0xd6, 0xff, 0, 0, 0, 1])],
    ["a record definition", new Packr({ useRecords: true, structures: [] }).pack({ a: 1 })],
    ["the byte that is never used", Buffer.from([0xc1])],
  ])("refuses %s", (_, payload) => {
    expect(() => decode(payload)).toThrow(expect.objectContaining({ code: "PROTOCOL_VIOLATION" }));
  });

  it("of any bytes gives a value or a typed error, and leaves Object.prototype alone", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          decode(bytes);
        } catch (error) {
          expect(error).toMatchObject({ code: "PROTOCOL_VIOLATION" });
        }
        expect(Object.keys(Object.prototype)).toEqual([]);
      }),
    );
  });
});
