/** Counters that all threads of a run add to and the display reads, without messages. */

const NAMES = ["steps", "replayed", "forks", "parks", "evaluations", "live"] as const;

export type CounterName = (typeof NAMES)[number];

export class Counters {
  readonly buffer: SharedArrayBuffer;
  readonly #cells: BigInt64Array;

  constructor(buffer = new SharedArrayBuffer(NAMES.length * BigInt64Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#cells = new BigInt64Array(buffer);
  }

  add(name: CounterName, amount = 1): void {
    Atomics.add(this.#cells, NAMES.indexOf(name), BigInt(amount));
  }

  read(): Readonly<Record<CounterName, number>> {
    return Object.fromEntries(NAMES.map((name, index) => [name, Number(Atomics.load(this.#cells, index))])) as Record<
      CounterName,
      number
    >;
  }
}
