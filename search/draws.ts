/**
 * Randomness by name: a draw is a pure function of a seed and of what it is for. There is no generator, so there is
 * nothing to save, nothing to share between workers, and no order in which draws have to be made.
 *
 * The function is SipHash-2-4 (Aumasson and Bernstein, 2012), keyed with the seed, over an encoding of the names that no
 * two lists of names share.
 */

import { invalidArgument } from "./errors.js";
import { sipHash24 } from "./siphash.js";

/** A safe integer or any string. `1` and `"1"` are different names. */
export type DrawName = number | string;

const TAG_INTEGER = 1;
const TAG_STRING = 2;
const TWO_32 = 2 ** 32;
const LARGEST_COUNT = 2 ** 32;

// Scratch that outlives a call only to save allocations; nothing is read from it that the same call has not written.
let scratch = new Uint8Array(256);
const hash = { high: 0, low: 0 };

/** Uniform in [0, 1), a multiple of 2^-53. */
export function drawUniform(seed: number, ...names: readonly DrawName[]): number {
  hashNames(seed, names);
  return top53Bits() * 2 ** -53;
}

/** Uniform in 0 … count - 1; the bias is below count / 2^53. `count` is at most 2^32. */
export function drawInteger(seed: number, count: number, ...names: readonly DrawName[]): number {
  if (!Number.isInteger(count) || count < 1 || count > LARGEST_COUNT) {
    throw invalidArgument("count", count, "an integer from 1 to 2^32");
  }
  return Math.floor(drawUniform(seed, ...names) * count);
}

/** A seed for draws of its own, in 0 … 2^53 - 1. */
export function drawSeed(seed: number, ...names: readonly DrawName[]): number {
  hashNames(seed, names);
  return top53Bits();
}

/** @throws SearchError `INVALID_ARGUMENT` naming the field, unless it is an integer from 0 to 2^53 - 1. */
export function checkSeed(seed: unknown, field = "seed"): number {
  if (typeof seed !== "number" || !Number.isSafeInteger(seed) || seed < 0) {
    throw invalidArgument(field, seed, "an integer from 0 to 2^53 - 1");
  }
  return seed;
}

function hashNames(seed: number, names: readonly DrawName[]): void {
  let length = 0;
  for (const name of names) {
    length = typeof name === "number" ? encodeInteger(name, length) : encodeString(name, length);
  }
  checkSeed(seed);
  sipHash24({ low0: seed >>> 0, high0: Math.floor(seed / TWO_32), low1: 0, high1: 0 }, scratch, length, hash);
}

function top53Bits(): number {
  return (hash.high >>> 0) * 2 ** 21 + (hash.low >>> 11);
}

function encodeInteger(value: number, at: number): number {
  if (!Number.isSafeInteger(value)) throw invalidArgument("name", value, "a safe integer or a string");
  reserve(at + 9);
  scratch[at] = TAG_INTEGER;
  putWord(at + 1, value >>> 0);
  putWord(at + 5, Math.floor(value / TWO_32));
  return at + 9;
}

function encodeString(value: string, at: number): number {
  reserve(at + 5 + 2 * value.length);
  scratch[at] = TAG_STRING;
  putWord(at + 1, value.length);
  let end = at + 5;
  for (let index = 0; index < value.length; index += 1) {
    const unit = value.charCodeAt(index);
    scratch[end] = unit;
    scratch[end + 1] = unit >>> 8;
    end += 2;
  }
  return end;
}

function putWord(at: number, word: number): void {
  scratch[at] = word;
  scratch[at + 1] = word >>> 8;
  scratch[at + 2] = word >>> 16;
  scratch[at + 3] = word >>> 24;
}

function reserve(bytes: number): void {
  if (bytes <= scratch.length) return;
  const larger = new Uint8Array(Math.max(bytes, 2 * scratch.length));
  larger.set(scratch);
  scratch = larger;
}
