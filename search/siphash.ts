/** The 128-bit key as 32-bit halves of its two little-endian 64-bit words. */
export interface SipKey {
  readonly low0: number;
  readonly high0: number;
  readonly low1: number;
  readonly high1: number;
}

// v0 … v3 as low, high pairs; outlives a call only to save its allocation.
const v = new Int32Array(8);

/**
 * SipHash-2-4 of the first `length` bytes, 64 bits, written to `out` as signed 32-bit halves.
 *
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. 64-bit words are pairs of 32-bit integers:
 * BigInt takes about twenty times as long.
 */
export function sipHash24(key: SipKey, bytes: Uint8Array, length: number, out: { high: number; low: number }): void {
  v[0] = key.low0 ^ 0x70736575;
  v[1] = key.high0 ^ 0x736f6d65;
  v[2] = key.low1 ^ 0x6e646f6d;
  v[3] = key.high1 ^ 0x646f7261;
  v[4] = key.low0 ^ 0x6e657261;
  v[5] = key.high0 ^ 0x6c796765;
  v[6] = key.low1 ^ 0x79746573;
  v[7] = key.high1 ^ 0x74656462;
  const whole = length - (length % 8);
  for (let at = 0; at < whole; at += 8) absorb(readWord(bytes, at, at + 4), readWord(bytes, at + 4, at + 8));
  const tail = readWord(bytes, whole + 4, Math.max(length, whole + 4));
  absorb(readWord(bytes, whole, Math.min(length, whole + 4)), tail | (length << 24));
  v[4] = (v[4] as number) ^ 0xff;
  for (let round = 0; round < 4; round += 1) sipRound();
  out.low = (v[0] as number) ^ (v[2] as number) ^ (v[4] as number) ^ (v[6] as number);
  out.high = (v[1] as number) ^ (v[3] as number) ^ (v[5] as number) ^ (v[7] as number);
}

/** Little-endian; bytes from `end` on count as zero. */
function readWord(bytes: Uint8Array, start: number, end: number): number {
  if (end === start + 4) {
    const low = (bytes[start] as number) | ((bytes[start + 1] as number) << 8);
    return low | ((bytes[start + 2] as number) << 16) | ((bytes[start + 3] as number) << 24);
  }
  let word = 0;
  for (let at = start; at < end; at += 1) word |= (bytes[at] as number) << (8 * (at - start));
  return word;
}

function absorb(low: number, high: number): void {
  v[6] = (v[6] as number) ^ low;
  v[7] = (v[7] as number) ^ high;
  sipRound();
  sipRound();
  v[0] = (v[0] as number) ^ low;
  v[1] = (v[1] as number) ^ high;
}

function sipRound(): void {
  let low0 = v[0] as number;
  let high0 = v[1] as number;
  let low1 = v[2] as number;
  let high1 = v[3] as number;
  let low2 = v[4] as number;
  let high2 = v[5] as number;
  let low3 = v[6] as number;
  let high3 = v[7] as number;
  let sum = 0;
  let swap = 0;

  sum = (low0 + low1) | 0;
  high0 = (high0 + high1 + carry(sum, low1)) | 0;
  low0 = sum;
  swap = (low1 << 13) | (high1 >>> 19);
  high1 = ((high1 << 13) | (low1 >>> 19)) ^ high0;
  low1 = swap ^ low0;
  swap = low0;
  low0 = high0;
  high0 = swap;

  sum = (low2 + low3) | 0;
  high2 = (high2 + high3 + carry(sum, low3)) | 0;
  low2 = sum;
  swap = (low3 << 16) | (high3 >>> 16);
  high3 = ((high3 << 16) | (low3 >>> 16)) ^ high2;
  low3 = swap ^ low2;

  sum = (low0 + low3) | 0;
  high0 = (high0 + high3 + carry(sum, low3)) | 0;
  low0 = sum;
  swap = (low3 << 21) | (high3 >>> 11);
  high3 = ((high3 << 21) | (low3 >>> 11)) ^ high0;
  low3 = swap ^ low0;

  sum = (low2 + low1) | 0;
  high2 = (high2 + high1 + carry(sum, low1)) | 0;
  low2 = sum;
  swap = (low1 << 17) | (high1 >>> 15);
  high1 = ((high1 << 17) | (low1 >>> 15)) ^ high2;
  low1 = swap ^ low2;
  swap = low2;
  low2 = high2;
  high2 = swap;

  v[0] = low0;
  v[1] = high0;
  v[2] = low1;
  v[3] = high1;
  v[4] = low2;
  v[5] = high2;
  v[6] = low3;
  v[7] = high3;
}

/** Carry of an unsigned 32-bit addition, told from the wrapped sum and one of the addends. */
function carry(sum: number, addend: number): number {
  return sum >>> 0 < addend >>> 0 ? 1 : 0;
}
