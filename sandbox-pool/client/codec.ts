/**
 * MessagePack as the protocol has it: maps with string keys, binary, integers, nothing else. What cannot arrive
 * unchanged is refused where it is encoded, with the path of the value; what the protocol does not have is refused where it
 * is decoded.
 *
 * Integers: a JavaScript number that is a safe integer travels as an integer. A bigint does too, so nanoseconds above
 * 2^53 survive. Decoding gives a number where it is exact and a bigint where it is not.
 */

import { Packr, Unpackr } from "msgpackr";

import { CoppiceError } from "../errors.js";

/** Largest payload of one frame, both ways. */
export const MAX_FRAME_BYTES = 16 * 1024 * 1024;

/** Deepest nesting of arrays and maps, as the daemon limits it. */
export const MAX_NESTING = 32;

/** Plain objects cannot hold it as data, and msgpackr renames it silently. */
const FORBIDDEN_KEY = "__proto__";

const MIN_INT64 = -(2n ** 63n);
const MAX_UINT64 = 2n ** 64n - 1n;
/** From here on, or a little later, msgpackr would send an integer as a float. */
const MAX_INT32 = 2 ** 31;

/** UTF-8 has no form for it, so it would arrive as something else. */
const LONE_SURROGATE = /\p{Surrogate}/u;

const packr = new Packr({ useRecords: false, useToJSON: false });
const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: false, int64AsType: "bigint" });

/** Payload of one frame. Throws `INVALID_ARGUMENT` naming the path of what cannot be sent, `FRAME_TOO_LARGE`. */
export function encode(message: unknown): Buffer {
  const payload = packr.pack(toWire(message, "", 0));
  if (payload.length > MAX_FRAME_BYTES) {
    throw new CoppiceError(`Message of ${payload.length} bytes is over the limit of ${MAX_FRAME_BYTES}`, {
      code: "FRAME_TOO_LARGE",
      faultDomain: "user",
      remedy: "Send the data in several pieces, for example with files.append.",
    });
  }
  return payload;
}

/** The message in one frame's payload. Throws `PROTOCOL_VIOLATION`. */
export function decode(payload: Uint8Array): unknown {
  let value: unknown;
  try {
    value = unpackr.unpack(payload);
  } catch (cause) {
    throw violation("Message can't be decoded", cause);
  }
  return fromWire(value, 0);
}

/** A break of the protocol by the other side. The stream has no next message to go on with. */
export function violation(message: string, cause?: unknown): CoppiceError {
  return new CoppiceError(message, {
    code: "PROTOCOL_VIOLATION",
    faultDomain: "bug",
    remedy: "Check that the client and the daemon are of the same release.",
    cause,
  });
}

function unencodable(path: string, what: string): CoppiceError {
  return new CoppiceError(`${path === "" ? "Message" : `\`${path}\``} can't be sent: ${what}`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "Use plain objects, arrays, strings, numbers, bigints, booleans, null and Uint8Array.",
  });
}

function toWire(value: unknown, path: string, depth: number): unknown {
  switch (typeof value) {
    case "boolean":
      return value;
    case "string":
      if (LONE_SURROGATE.test(value)) {
        throw unencodable(path, "the string holds half of a surrogate pair");
      }
      return value;
    case "number":
      return numberToWire(value, path);
    case "bigint":
      if (value < MIN_INT64 || value > MAX_UINT64) {
        throw unencodable(path, "the integer does not fit in 64 bits");
      }
      return value;
    case "object":
      return value === null ? null : objectToWire(value, path, depth);
    default:
      throw unencodable(path, `it is of type ${typeof value}`);
  }
}

function numberToWire(value: number, path: string): number | bigint {
  if (!Number.isFinite(value)) {
    throw unencodable(path, `it is ${value}`);
  }
  if (Number.isInteger(value) && Math.abs(value) >= MAX_INT32) {
    if (!Number.isSafeInteger(value)) {
      throw unencodable(path, `${value} is above the integers that a number holds exactly; use a bigint`);
    }
    return BigInt(value);
  }
  return value;
}

function objectToWire(value: object, path: string, depth: number): unknown {
  if (value instanceof Uint8Array) {
    return value;
  }
  if (depth >= MAX_NESTING) {
    throw unencodable(path, `it is nested deeper than ${MAX_NESTING}, or contains itself`);
  }
  if (Array.isArray(value)) {
    return value.map((item, index) => toWire(item, `${path}[${index}]`, depth + 1));
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    throw unencodable(path, "it is an object of a class");
  }
  // A Map, because msgpackr looks at properties such as `constructor`, which here may be data.
  const map = new Map<string, unknown>();
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) {
      continue;
    }
    const itemPath = path === "" ? key : `${path}.${key}`;
    if (key === FORBIDDEN_KEY || LONE_SURROGATE.test(key)) {
      throw unencodable(itemPath, "the key is not allowed");
    }
    map.set(key, toWire(item, itemPath, depth + 1));
  }
  return map;
}

function fromWire(value: unknown, depth: number): unknown {
  if (typeof value === "bigint") {
    const exact = value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER);
    return exact ? Number(value) : value;
  }
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) {
    return value;
  }
  if (depth >= MAX_NESTING) {
    throw violation(`Message is nested deeper than ${MAX_NESTING}`);
  }
  if (Array.isArray(value)) {
    return value.map((item) => fromWire(item, depth + 1));
  }
  if (!(value instanceof Map)) {
    throw violation("Message holds a MessagePack extension");
  }
  const object: Record<string, unknown> = {};
  for (const [key, item] of value as Map<unknown, unknown>) {
    if (typeof key !== "string" || key === FORBIDDEN_KEY) {
      throw violation("Message holds a map key that is not allowed");
    }
    object[key] = fromWire(item, depth + 1);
  }
  return object;
}
