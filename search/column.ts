const FIRST_CAPACITY = 16;

/** A growing array of numbers: one field of all records of a kind. Integers are exact up to 2^53. */
export class Column {
  #values: Float64Array;
  #length: number;

  constructor(values: readonly number[] = []) {
    this.#values = new Float64Array(Math.max(FIRST_CAPACITY, values.length));
    this.#values.set(values);
    this.#length = values.length;
  }

  get length(): number {
    return this.#length;
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
      const larger = new Float64Array(2 * this.#values.length);
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
