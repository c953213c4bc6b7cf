/**
 * Where a row keeps its integers, counted in integers from its start. What they mean stands at `TreeColumns`. The first 8 and the first
 * 2 doubles, bytes 0 to 47, are what a choice among siblings looks at: one line of the processor's cache.
 */
export const INTEGER = {
  kind: 0,
  flags: 1,
  parent: 12,
  slot: 2,
  firstChild: 7,
  lastChild: 14,
  nextSibling: 3,
  childCount: 13,
  depth: 15,
  visits: 4,
  inFlight: 5,
  trial: 22,
  target: 6,
} as const;

/** Where a row keeps its doubles, counted in doubles from its start. */
export const REAL = { value: 4, reward: 5, raw: 8, squares: 9, bound: 10 } as const;

/** Where `ChildSlots` keeps what it knows of a row, counted in integers; not a field, because it says nothing new. */
export const SLOTS = { start: 23, capacity: 24 } as const;

export type IntegerField = keyof typeof INTEGER;
export type RealField = keyof typeof REAL;

/** In the order in which they are serialised. */
export const INTEGER_FIELDS = Object.keys(INTEGER) as readonly IntegerField[];
/** The same for doubles. */
export const REAL_FIELDS = Object.keys(REAL) as readonly RealField[];

/** A row has 128 bytes. */
export const INTEGER_STRIDE = 32;
export const REAL_STRIDE = 16;
const ROW_BYTES = 128;

/** What each field means. */
export interface TreeColumns extends Readonly<Record<IntegerField | RealField, Field>> {
  /** One of `Kind`. */
  readonly kind: Field;
  /** Bits of `Flag`. */
  readonly flags: Field;
  readonly parent: Field;
  /** Position in the parent's list of actions; proposals come behind the list. Outcomes of a chance node: order of discovery. */
  readonly slot: Field;
  readonly firstChild: Field;
  readonly lastChild: Field;
  /** The next child of the same parent; for free rows the next free row. */
  readonly nextSibling: Field;
  /** Children, dead and pending ones included. */
  readonly childCount: Field;
  /** Decisions from the first root. */
  readonly depth: Field;
  /** Simulations that came through and are merged, its own evaluation included. */
  readonly visits: Field;
  /** Simulations under way that came through. */
  readonly inFlight: Field;
  /** The trial that found it. */
  readonly trial: Field;
  /** Of links: the row of the state. */
  readonly target: Field;
  /** Value of the state for player 0: what the backup rule makes of the evaluations below. */
  readonly value: Field;
  /** The value that the state was first told to have. */
  readonly raw: Field;
  /** Reward for player 0 of the step that leads here. */
  readonly reward: Field;
  /** Mean of squares of normalised returns of the step that leads here; kept only where a rule asks for it. */
  readonly squares: Field;
  /** See `Flag.bounded`. */
  readonly bound: Field;
}

/** One field of all rows. A row that is not there is a `RangeError`. */
export interface Field {
  get(row: number): number;
  set(row: number, value: number): void;
  add(row: number, difference: number): void;
}

/** The fields of all rows, each as a list. */
export type RowData = Readonly<Record<IntegerField | RealField, readonly number[]>>;

/** No row, no trial. */
export const NONE = -1;
const FIRST_CAPACITY = 16;

/**
 * The numbers of a tree: row after row, each with all its fields side by side, because a search that looks at one field of a node looks
 * at the others as well, and in a large tree each look at another place costs a wait for memory.
 */
export class Rows {
  readonly columns: TreeColumns;
  readonly #block: Block;

  constructor(data: RowData | null = null) {
    const rows = data?.kind.length ?? 0;
    const buffer = new ArrayBuffer(ROW_BYTES * Math.max(FIRST_CAPACITY, rows));
    this.#block = { integers: new Int32Array(buffer), reals: new Float64Array(buffer), rows };
    if (data !== null) fill(this.#block, data);
    this.columns = Object.fromEntries([
      ...INTEGER_FIELDS.map((field) => [field, new IntegerColumn(this.#block, INTEGER[field])]),
      ...REAL_FIELDS.map((field) => [field, new RealColumn(this.#block, REAL[field])]),
    ]) as TreeColumns;
  }

  get length(): number {
    return this.#block.rows;
  }

  /** For tight loops over rows that are known to be right: `integers[row * INTEGER_STRIDE + INTEGER.visits]`. Valid until a row is added. */
  get integers(): Int32Array {
    return this.#block.integers;
  }

  /** The same for doubles: `reals[row * REAL_STRIDE + REAL.value]`. */
  get reals(): Float64Array {
    return this.#block.reals;
  }

  /** Adds an empty row. */
  push(): void {
    const block = this.#block;
    const bytes = block.integers.byteLength;
    if (ROW_BYTES * block.rows === bytes) {
      const buffer = new ArrayBuffer(2 * bytes);
      const integers = new Int32Array(buffer);
      integers.set(block.integers);
      block.integers = integers;
      block.reals = new Float64Array(buffer);
    }
    block.rows += 1;
    point(block.integers, block.rows - 1);
  }

  /** Makes a row empty: it points to no row and to no trial, all else is 0. */
  clear(row: number): void {
    const { integers } = this.#block;
    integers.fill(0, row * INTEGER_STRIDE, (row + 1) * INTEGER_STRIDE);
    point(integers, row);
  }

  toData(): RowData {
    const { integers, reals, rows } = this.#block;
    const lists: [string, number[]][] = [];
    for (const field of INTEGER_FIELDS) {
      const list: number[] = new Array(rows);
      for (let row = 0; row < rows; row += 1) list[row] = integers[row * INTEGER_STRIDE + INTEGER[field]] as number;
      lists.push([field, list]);
    }
    for (const field of REAL_FIELDS) {
      const list: number[] = new Array(rows);
      for (let row = 0; row < rows; row += 1) list[row] = reals[row * REAL_STRIDE + REAL[field]] as number;
      lists.push([field, list]);
    }
    return Object.fromEntries(lists) as unknown as RowData;
  }
}

/** Both arrays are views of one buffer. */
interface Block {
  integers: Int32Array;
  reals: Float64Array;
  rows: number;
}

// Two classes, because a function that reads arrays of two types is slower at both.
class IntegerColumn implements Field {
  readonly #block: Block;
  readonly #offset: number;

  constructor(block: Block, offset: number) {
    this.#block = block;
    this.#offset = offset;
  }

  get(row: number): number {
    checkRow(this.#block, row);
    return this.#block.integers[row * INTEGER_STRIDE + this.#offset] as number;
  }

  set(row: number, value: number): void {
    checkRow(this.#block, row);
    this.#block.integers[row * INTEGER_STRIDE + this.#offset] = value;
  }

  add(row: number, difference: number): void {
    this.set(row, this.get(row) + difference);
  }
}

class RealColumn implements Field {
  readonly #block: Block;
  readonly #offset: number;

  constructor(block: Block, offset: number) {
    this.#block = block;
    this.#offset = offset;
  }

  get(row: number): number {
    checkRow(this.#block, row);
    return this.#block.reals[row * REAL_STRIDE + this.#offset] as number;
  }

  set(row: number, value: number): void {
    checkRow(this.#block, row);
    this.#block.reals[row * REAL_STRIDE + this.#offset] = value;
  }

  add(row: number, difference: number): void {
    this.set(row, this.get(row) + difference);
  }
}

function fill({ integers, reals, rows }: Block, data: RowData): void {
  for (const field of INTEGER_FIELDS)
    for (let row = 0; row < rows; row += 1)
      integers[row * INTEGER_STRIDE + INTEGER[field]] = data[field][row] as number;
  for (const field of REAL_FIELDS)
    for (let row = 0; row < rows; row += 1) reals[row * REAL_STRIDE + REAL[field]] = data[field][row] as number;
}

function point(integers: Int32Array, row: number): void {
  const at = row * INTEGER_STRIDE;
  integers[at + INTEGER.parent] = NONE;
  integers[at + INTEGER.firstChild] = NONE;
  integers[at + INTEGER.lastChild] = NONE;
  integers[at + INTEGER.nextSibling] = NONE;
  integers[at + INTEGER.trial] = NONE;
  integers[at + INTEGER.target] = NONE;
}

function checkRow({ rows }: Block, row: number): void {
  if (!(row >= 0 && row < rows)) throw new RangeError(`Row ${row} is outside a tree of ${rows}`);
}
