import { invalidArgument } from "./errors.js";

/** @throws SearchError `INVALID_ARGUMENT` for anything but an object all of whose keys are known. */
export function checkKeys(options: object, known: ReadonlySet<string>, prefix: string): void {
  if (typeof options !== "object" || options === null) {
    throw invalidArgument(prefix === "" ? "options" : prefix.slice(0, -1), options, "an object");
  }
  for (const key of Object.keys(options)) {
    if (!known.has(key))
      throw invalidArgument(`${prefix}${key}`, "present", `left out; known are ${[...known].join(", ")}`);
  }
}

/** @throws SearchError `INVALID_ARGUMENT` for anything but an integer from 1 to `largest`. */
export function integer(field: string, given: number | undefined, otherwise: number, largest: number): number {
  const value = given ?? otherwise;
  if (!Number.isInteger(value) || value < 1 || value > largest) {
    throw invalidArgument(field, value, `an integer from 1 to ${largest}`);
  }
  return value;
}

/** @throws SearchError `INVALID_ARGUMENT` */
export function flag(field: string, given: boolean | undefined, otherwise: boolean): boolean {
  const value = given ?? otherwise;
  if (typeof value !== "boolean") throw invalidArgument(field, value, "true or false");
  return value;
}

interface Bounds {
  readonly from: number;
  readonly to: number;
}

/** @throws SearchError `INVALID_ARGUMENT` for anything but a number in the closed interval. */
export function real(field: string, given: number | undefined, otherwise: number, { from, to }: Bounds): number {
  const value = given ?? otherwise;
  if (typeof value !== "number" || !(value >= from && value <= to)) {
    throw invalidArgument(field, value, `a number from ${from} to ${to}`);
  }
  return value;
}

/** @throws SearchError `INVALID_ARGUMENT` */
export function oneOf<Word extends string>(
  field: string,
  given: Word | undefined,
  otherwise: Word,
  words: readonly Word[],
): Word {
  const value = given ?? otherwise;
  if (!words.includes(value)) throw invalidArgument(field, value, `one of ${words.join(", ")}`);
  return value;
}
