import { describe, expect, it } from "vitest";

import { canonicalJson, digestOf, type Json, jsonProblem } from "./json.js";

describe("canonicalJson", () => {
  it("gives equal text for objects with keys in another order", () => {
    expect(canonicalJson({ b: 1, a: [{ d: null, c: "x" }] })).toBe(canonicalJson({ a: [{ c: "x", d: null }], b: 1 }));
  });

  it("keeps keys that objects have special uses for", () => {
    const value = JSON.parse('{"__proto__":1,"constructor":2,"":3}') as Json;
    expect(canonicalJson(value)).toBe('{"":3,"__proto__":1,"constructor":2}');
  });

  it("gives different digests for a number and its text", () => {
    expect(digestOf(1)).not.toBe(digestOf("1"));
  });
});

describe("jsonProblem", () => {
  it.each([
    ["undefined in an object", { a: { b: undefined } }, "value.a.b is undefined"],
    ["NaN", { a: [Number.NaN] }, "value.a[0] is NaN"],
    ["minus zero, which becomes zero", { a: -0 }, "value.a is -0"],
    ["a date", { at: new Date(0) }, "value.at is a Date, not a plain object"],
    ["a map", { seen: new Map() }, "value.seen is a Map, not a plain object"],
    ["a bigint", { n: 1n }, "value.n is a bigint"],
    ["a function", { f: () => 1 }, "value.f is a function"],
    ["half of a surrogate pair", { s: "\ud800" }, "value.s has a lone surrogate"],
    // biome-ignore lint/suspicious/noSparseArray: the hole is what is tested
    ["a hole in an array", [1, , 2], "value[1] is undefined"],
  ])("names the path of %s", (_what, value, problem) => {
    expect(jsonProblem(value)).toBe(problem);
  });

  it("refuses what is nested without end", () => {
    const value: { self?: unknown } = {};
    value.self = value;
    expect(jsonProblem(value)).toMatch(/nested more than 100 levels/);
  });

  it("finds nothing wrong with plain data", () => {
    expect(jsonProblem({ a: [1, "x", true, null, { b: 0.5 }], ["__proto__"]: "fine" })).toBeUndefined();
  });
});
