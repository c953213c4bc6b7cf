import { describe, expect, it } from "vitest";

import { toRustPattern } from "./pattern.js";

/** Rust's class escapes and `\x{…}` as a JavaScript expression, so that a translation can be tried here. */
function backToJavaScript(rust: string): RegExp {
  const flags = /^\(\?([imR]+)\)/.exec(rust);
  const body = rust
    .slice(flags?.[0].length ?? 0)
    .replaceAll("(?-u:\\b)", "\\b")
    .replaceAll("(?-u:\\B)", "\\B")
    .replaceAll("(?s-u:.)", "[^]")
    .replace(/\\x\{([0-9a-f]+)\}/g, (_, hex: string) => `\\u{${hex}}`);
  return new RegExp(body, `u${flags?.[1]?.replace("R", "") ?? ""}`);
}

const TEXTS = [
  "",
  "You are in a room.\r\n> ",
  "score 31 of 350",
  "a-b]c",
  "[x]{2}",
  "foo\nbar",
  "Ünïcode \u{1f987} bat",
  "A\tB\\C/D",
  "xx..xx",
  "0b1_w",
];

describe("toRustPattern", () => {
  it.each([
    /> $/,
    /^score (\d+) of (?<total>\d+)/,
    /^bar$/m,
    /room\.\s*>/i,
    /[\w-]+/,
    /[^\d\s]+$/,
    /[\]a-]/,
    /[a\-z]b/,
    /a.*c/s,
    /foo.bar/,
    /\bbat\b/,
    /x{2}\.{1,2}x{1,}/,
    /\[x\]\{2}/,
    /\u{1f987}/u,
    /\ud83e\udd87/,
    /\t\x42\\[/]\cJ?/,
    /Ünï|nothing/,
    /(?:a|b)-b/,
    // biome-ignore lint/correctness/noEmptyCharacterClassInRegex: JavaScript has it, so a user may write it.
    /[^]/,
    /[\b]/,
    /p{Lu}n/,
    /\S\s\S/,
    /_\w$/,
  ])("keeps what %s matches", (pattern) => {
    const translated = backToJavaScript(toRustPattern(pattern));
    for (const text of TEXTS) {
      expect([text, translated.test(text)]).toEqual([text, new RegExp(pattern.source, pattern.flags).test(text)]);
    }
  });

  it.each([
    [/> $/, "\\x{3e}\\x{20}$"],
    [/\d+/, "[0-9]+"],
    [/^a$/im, "(?imR)^a$"],
    [/./, "[^\\n\\r\\x{2028}\\x{2029}]"],
    [/(a)(?<b>c)/, "(?:a)(?:c)"],
  ])("writes %s as Rust has it", (pattern, rust) => {
    expect(toRustPattern(pattern)).toBe(rust);
  });

  it("takes a string literally", () => {
    expect(toRustPattern("a.b*")).toBe("a\\x{2e}b\\x{2a}");
  });

  it.each([/(?=a)b/, /(?!a)b/, /(?<=a)b/, /(?<!a)b/, /(a)\1/, /(?<n>a)\k<n>/, /\p{Lu}/u, /a/y, /\ud800/])(
    "refuses %s, which the guest does not have",
    (pattern) => {
      expect(() => toRustPattern(pattern)).toThrow(
        expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining("`pattern`") }),
      );
    },
  );

  it("refuses an empty string, which would match at once", () => {
    expect(() => toRustPattern("")).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});
