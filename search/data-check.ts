import { checkSeed } from "./draws.js";
import { SearchError } from "./errors.js";

export type Fields<Data> = Readonly<Partial<Record<keyof Data, unknown>>>;

export interface Range {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

export const COUNT: Range = { from: 0, to: Number.MAX_SAFE_INTEGER };
const PHASES: readonly unknown[] = ["running", "waiting", "settled"];

/**
 * Checks of values that may be what `serialise` returned: a damaged file must fail here and not as a wrong choice later. All throw
 * SearchError `INCOMPATIBLE_STATE`.
 */
export class DataCheck {
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

  /** What all serialised states begin with. */
  header<Data>(value: unknown, wantedFormat: number): Fields<Data> {
    const fields = this.object<{ format: unknown; algorithm: unknown; seed: unknown }>(value, "state");
    const { format, algorithm, seed } = fields;
    if (format !== wantedFormat) throw this.incompatible(`has format ${String(format)}, and not ${wantedFormat}`);
    if (algorithm !== this.#name) throw this.incompatible("is of another search");
    try {
      checkSeed(seed);
    } catch (error) {
      throw this.incompatible("has no seed", error);
    }
    return value as Fields<Data>;
  }

  /** The open trials of a book, without what is particular to a search. */
  book(value: unknown): readonly (readonly [record: Readonly<Record<string, unknown>>, field: string])[] {
    const { merged, closed, open } = this.object<{ merged: unknown; closed: unknown; open: unknown }>(value, "book");
    this.indexes([merged], COUNT, "book.merged");
    if (typeof closed !== "boolean") throw this.incompatible("has no truth value at book.closed");
    return this.list(open, "book.open").map((entry, index) => {
      const field = `book.open[${index}]`;
      const record = this.object<Record<"id" | "attempt" | "phase" | "outcome", unknown>>(entry, field);
      if (record.id !== (merged as number) + index) throw this.incompatible(`has trials out of order at ${field}`);
      this.indexes([record.attempt], COUNT, field);
      if (!PHASES.includes(record.phase)) throw this.incompatible(`has an unknown phase at ${field}`);
      if ((record.phase === "settled") !== (record.outcome !== null)) {
        throw this.incompatible(`has a phase that does not fit the outcome at ${field}`);
      }
      return [record, field] as const;
    });
  }

  columns<Field extends string>(
    value: unknown,
    fields: readonly Field[],
    { length, field }: { readonly length: number; readonly field: string },
  ): Readonly<Record<Field, readonly number[]>> {
    const columns = this.object<Record<Field, unknown>>(value, field);
    for (const name of fields) this.numbers(columns[name], length, `${field}.${name}`);
    return columns as Readonly<Record<Field, readonly number[]>>;
  }

  object<Data>(value: unknown, field: string): Fields<Data> {
    if (typeof value !== "object" || value === null) throw this.incompatible(`has no object at ${field}`);
    return value as Fields<Data>;
  }

  list(value: unknown, field: string): readonly unknown[] {
    if (!Array.isArray(value)) throw this.incompatible(`has no list at ${field}`);
    return value as readonly unknown[];
  }

  strings(value: unknown, field: string): readonly unknown[] {
    const values = this.list(value, field);
    if (values.every((entry) => typeof entry === "string")) return values;
    throw this.incompatible(`has something else than strings at ${field}`);
  }

  numbers(value: unknown, length: number, field: string): void {
    const values = this.list(value, field);
    if (values.length === length && values.every((entry) => Number.isFinite(entry))) return;
    throw this.incompatible(`has no list of ${length} numbers at ${field}`);
  }

  indexes(values: readonly unknown[], { from, to }: Range, field: string): void {
    for (const value of values) {
      if (Number.isInteger(value) && (value as number) >= from && (value as number) < to) continue;
      throw this.incompatible(`has no integer from ${from} to ${to - 1} at ${field}`);
    }
  }

  incompatible(what: string, cause?: unknown): SearchError {
    return new SearchError(`The serialised state of ${this.#name} ${what}`, {
      code: "INCOMPATIBLE_STATE",
      faultDomain: "user",
      remedy: `Give what serialise() of ${this.#name} returned, unchanged; a state of another version has to be made anew.`,
      cause,
    });
  }
}
