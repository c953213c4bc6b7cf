const FIRST_CAPACITY = 16;

/** `int32` takes half the space, for values that are known to be whole and small. */
export type ColumnKind = "float64" | "int32";

/** A growing array of numbers: one field of all records of a kind. Integers are exact up to 2^53, in `int32` up to 2^31 - 1. */
export class Column {
  #values: Float64Array | Int32Array;
  #length: number;

  constructor(values: readonly number[] = [], kind: ColumnKind = "float64") {
    const capacity = Math.max(FIRST_CAPACITY, values.length);
    this.#values = kind === "float64" ? new Float64Array(capacity) : new Int32Array(capacity);
    this.#values.set(values);
    this.#length = values.length;
  }

  get length(): number {
    return this.#length;
  }

  /** The storage itself, for tight loops over indexes that are known to be right: it is replaced by another when the column grows. */
  get storage(): Float64Array | Int32Array {
    return this.#values;
  }

  get(index: number): number {
    const value = index < this.#length ? this.#values[index] : undefined;
    if (value === undefined) throw new RangeError(`Index ${index} is outside a column of ${this.#length}`);
    return value;
  }

  set(index: number, value: number): void {
    if (!(index >= 0 && index < this.#length)) {
      throw new RangeError(`Index ${index} is outside a column of ${this.#length}`);
    }
    this.#values[index] = value;
  }

  add(index: number, difference: number): void {
    this.set(index, this.get(index) + difference);
  }

  push(value: number): void {
    if (this.#length === this.#values.length) {
      const capacity = 2 * this.#values.length;
      const larger = this.#values instanceof Float64Array ? new Float64Array(capacity) : new Int32Array(capacity);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length] = value;
    this.#length += 1;
  }

  toArray(): number[] {
    return Array.from(this.#values.subarray(0, this.#length));
  }
}
