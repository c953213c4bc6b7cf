/** Strings with numbers: each different string gets the next index. */
export class NameTable {
  readonly #names: string[];
  readonly #indexes = new Map<string, number>();

  constructor(names: readonly string[] = []) {
    this.#names = [...names];
    for (const [index, name] of this.#names.entries()) this.#indexes.set(name, index);
  }

  get size(): number {
    return this.#names.length;
  }

  find(name: string): number | undefined {
    return this.#indexes.get(name);
  }

  name(index: number): string {
    const name = this.#names[index];
    if (name === undefined) throw new RangeError(`Index ${index} is outside a table of ${this.#names.length} names`);
    return name;
  }

  /** The index of a name, which is added if it is new. */
  intern(name: string): number {
    const known = this.#indexes.get(name);
    if (known !== undefined) return known;
    this.#names.push(name);
    this.#indexes.set(name, this.#names.length - 1);
    return this.#names.length - 1;
  }

  toArray(): string[] {
    return [...this.#names];
  }
}
