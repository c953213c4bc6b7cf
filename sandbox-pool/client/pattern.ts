/**
 * JavaScript regular expressions as the guest's agent understands them (Rust `regex`, on bytes). What both have is
 * translated so that it means the same; what only JavaScript has (lookaround, backreferences) is refused.
 */

import { invalidArgument } from "./validation.js";

const DIGIT = "0-9";
const WORD = "0-9A-Za-z_";
/** ECMAScript's WhiteSpace and LineTerminator. */
const SPACE =
  "\\x{9}-\\x{d}\\x{20}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}";
/** What `.` does not match in JavaScript; Rust excludes only the line feed. */
const LINE_TERMINATORS = "\\n\\r\\x{2028}\\x{2029}";
const QUANTIFIER = /^\{\d+(?:,\d*)?\}/;
const CONTROL_LETTER = /^c([A-Za-z])/;
const HEX_ESCAPES = [/^x([0-9A-Fa-f]{2})/, /^u([0-9A-Fa-f]{4})/, /^u\{([0-9A-Fa-f]{1,6})\}/] as const;
const PROPERTY = /^[pP]\{/;
const CONTROL_ESCAPES: Readonly<Record<string, number>> = { f: 0x0c, n: 0x0a, r: 0x0d, t: 0x09, v: 0x0b, "0": 0x00 };
const CLASS_ESCAPES: Readonly<Record<string, { readonly set: string; readonly negated: boolean }>> = {
  d: { set: DIGIT, negated: false },
  D: { set: DIGIT, negated: true },
  w: { set: WORD, negated: false },
  W: { set: WORD, negated: true },
  s: { set: SPACE, negated: false },
  S: { set: SPACE, negated: true },
};
const LETTER_OR_DIGIT = /[0-9A-Za-z]/;

/**
 * Rust source of a pattern; a string is matched literally. Flags `i`, `m`, `s` and `u` count, `g` and `d` say nothing
 * about whether there is a match. Throws `INVALID_ARGUMENT` for what can't be translated.
 */
export function toRustPattern(pattern: RegExp | string): string {
  if (typeof pattern === "string") {
    if (pattern === "") {
      throw invalidArgument("pattern", "must not be empty: it would match at once");
    }
    return [...pattern].map((character) => literal(character)).join("");
  }
  if (!(pattern instanceof RegExp)) {
    throw invalidArgument("pattern", "must be a RegExp or a string");
  }
  const unknown = [...pattern.flags].find((flag) => !"gimsud".includes(flag));
  if (unknown !== undefined) {
    throw refuse(`flag '${unknown}' has no counterpart in the guest`);
  }
  // `R`: with `m`, carriage returns end lines too, as in JavaScript.
  const flags = `${pattern.ignoreCase ? "i" : ""}${pattern.multiline ? "mR" : ""}`;
  const body = new Translator(pattern).translate();
  return flags === "" ? body : `(?${flags})${body}`;
}

function refuse(problem: string): Error {
  return invalidArgument("pattern", `${problem}; use a simpler expression, or match on the text that is returned`);
}

function codePoint(value: number): string {
  if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
    throw refuse("half of a surrogate pair can't be matched in a guest's UTF-8");
  }
  return `\\x{${value.toString(16)}}`;
}

/** One character that stands for itself, in a class or outside. */
function literal(character: string): string {
  const value = character.codePointAt(0) ?? 0;
  return value < 0x80 && LETTER_OR_DIGIT.test(character) ? character : codePoint(value);
}

class Translator {
  readonly #source: string;
  readonly #dotAll: boolean;
  readonly #isUnicode: boolean;
  #position = 0;

  constructor(pattern: RegExp) {
    this.#source = pattern.source;
    this.#dotAll = pattern.dotAll;
    this.#isUnicode = pattern.unicode;
  }

  translate(): string {
    let result = "";
    while (this.#position < this.#source.length) {
      result += this.#next();
    }
    return result;
  }

  get #rest(): string {
    return this.#source.slice(this.#position);
  }

  #take(): string {
    const character = String.fromCodePoint(this.#source.codePointAt(this.#position) ?? 0);
    this.#position += character.length;
    return character;
  }

  #next(): string {
    const character = this.#take();
    switch (character) {
      case "\\":
        return this.#escape();
      case "[":
        return this.#class();
      case "(":
        return this.#group();
      case ".":
        return this.#dotAll ? "(?s-u:.)" : `[^${LINE_TERMINATORS}]`;
      case "{":
        return this.#brace();
      case ")":
      case "|":
      case "*":
      case "+":
      case "?":
      case "^":
      case "$":
        return character;
      default:
        return literal(character);
    }
  }

  /** A quantifier, or in the grammar for old web pages a brace that stands for itself. */
  #brace(): string {
    const quantifier = QUANTIFIER.exec(`{${this.#rest}`)?.[0];
    if (quantifier === undefined) {
      return literal("{");
    }
    this.#position += quantifier.length - 1;
    return quantifier;
  }

  #group(): string {
    const rest = this.#rest;
    if (!rest.startsWith("?")) {
      return "(?:";
    }
    if (rest.startsWith("?:")) {
      this.#position += 2;
      return "(?:";
    }
    const name = /^\?<[^=!][^>]*>/.exec(rest)?.[0];
    if (name === undefined) {
      throw refuse("lookahead, lookbehind and flags of a group are not supported in the guest");
    }
    this.#position += name.length;
    return "(?:";
  }

  #escape(): string {
    const rest = this.#rest;
    if (/^[1-9]/.test(rest) || rest.startsWith("k<")) {
      throw refuse("backreferences are not supported in the guest");
    }
    if (rest.startsWith("b") || rest.startsWith("B")) {
      return `(?-u:\\${this.#take()})`;
    }
    const set = CLASS_ESCAPES[rest.charAt(0)];
    if (set !== undefined) {
      this.#position += 1;
      return `[${set.negated ? "^" : ""}${set.set}]`;
    }
    return this.#characterEscape();
  }

  /** Escapes that mean the same in a class and outside. The backslash is taken already. */
  #characterEscape(): string {
    const rest = this.#rest;
    if (this.#isUnicode && PROPERTY.test(rest)) {
      throw refuse("Unicode properties are not supported in the guest");
    }
    const high = /^u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})/.exec(rest);
    if (high?.[1] !== undefined && high[2] !== undefined) {
      this.#position += high[0].length;
      const pair = String.fromCharCode(Number.parseInt(high[1], 16), Number.parseInt(high[2], 16));
      return literal(pair);
    }
    for (const form of HEX_ESCAPES) {
      const match = form.exec(rest);
      if (match?.[1] !== undefined) {
        this.#position += match[0].length;
        return codePoint(Number.parseInt(match[1], 16));
      }
    }
    const control = CONTROL_LETTER.exec(rest);
    if (control?.[1] !== undefined) {
      this.#position += control[0].length;
      return codePoint((control[1].codePointAt(0) ?? 0) % 32);
    }
    const character = this.#take();
    const value = CONTROL_ESCAPES[character];
    return value === undefined ? literal(character) : codePoint(value);
  }

  #class(): string {
    const negated = this.#rest.startsWith("^");
    if (negated) {
      this.#position += 1;
    }
    let members = "";
    for (;;) {
      if (this.#rest.startsWith("]")) {
        this.#position += 1;
        break;
      }
      members += this.#classMember();
    }
    if (members === "") {
      return negated ? "(?s-u:.)" : "[^\\x{0}-\\x{10ffff}]";
    }
    return `[${negated ? "^" : ""}${members}]`;
  }

  #classMember(): string {
    const character = this.#take();
    if (character === "-") {
      return this.#isRangeDash() ? "-" : literal("-");
    }
    if (character !== "\\") {
      return literal(character);
    }
    const rest = this.#rest;
    if (rest.startsWith("b")) {
      this.#position += 1;
      return codePoint(0x08);
    }
    const set = CLASS_ESCAPES[rest.charAt(0)];
    if (set !== undefined) {
      this.#position += 1;
      return set.negated ? `[^${set.set}]` : set.set;
    }
    return this.#characterEscape();
  }

  /** Whether the dash just taken stands between two characters, so that it means a range. */
  #isRangeDash(): boolean {
    const before = this.#source.slice(0, this.#position - 1);
    const afterOpening = /(?:^|[^\\])(?:\\\\)*\[\^?$/.test(before);
    const besideSet = /\\[dDwWsS]$/.test(before) || /^\\[dDwWsS]/.test(this.#rest);
    return !afterOpening && !besideSet && !this.#rest.startsWith("]");
  }
}
