import type { SearchBlock, SearchStatus } from "./algorithm.js";
import type { CellKnowledge } from "./cell-knowledge.js";
import { invalidArgument, SearchError } from "./errors.js";

/** A step as it was told, checked and copied, so that nobody can change it later. */
export interface RecordedVisit {
  readonly action: string;
  readonly reward: number;
  /** null: the environment has ended. */
  readonly cell: string | null;
  readonly score: number;
  readonly checkpoint: string | null;
  readonly landmarks: readonly (readonly [kind: string, key: string])[];
  /** Only where they were told. */
  readonly sample?: string;
  readonly verified?: string;
  readonly knowledge?: CellKnowledge;
}

/** `lost`: nothing is known and the trial is not tried again. */
export type Settled<Value> = Value | { readonly kind: "rejected" } | { readonly kind: "lost" };

/** The steps of a trial, checked and copied. */
export interface RecordedVisits {
  readonly kind: "value";
  readonly visits: readonly RecordedVisit[];
}

/**
 * | from    | to      | when |
 * |---------|---------|------|
 * | –       | running | first asked |
 * | running | waiting | infrastructure failure, attempts left |
 * | running | settled | value or rejection; infrastructure failure without attempts left, or after the end of asking |
 * | waiting | running | asked again, with the next attempt |
 * | waiting | settled | end of asking |
 * | running, waiting | settled | abandoned: where it started is no longer searched |
 * | settled | –       | merged, when it is its turn |
 */
export type TrialPhase = "running" | "waiting" | "settled";

interface Entry<Value> {
  readonly id: number;
  attempt: number;
  phase: TrialPhase;
  /** Set when settled. */
  outcome: Settled<Value> | null;
}

/** A trial as its search remembers it: `Start` is what was decided when it was asked, `Value` what is kept of its result. */
export type BookRecord<Start, Value> = Start & Entry<Value>;

const TRANSITIONS: Readonly<Record<TrialPhase, readonly TrialPhase[]>> = {
  running: ["waiting", "settled"],
  waiting: ["running", "settled"],
  settled: [],
};

/** A trial that is to be merged now, and what came of it. */
export interface Taken<Start, Value> {
  readonly record: BookRecord<Start, Value>;
  readonly outcome: Settled<Value>;
}

/** A book as plain data. */
export interface TrialBookData<Start, Value> {
  readonly merged: number;
  readonly closed: boolean;
  readonly open: readonly BookRecord<Start, Value>[];
}

/**
 * The trials that were asked and are not merged. They are numbered as they are asked and merged in that order, whatever the
 * order in which their outcomes arrive.
 */
export class TrialBook<Start extends object, Value> {
  /** Trials merged: those with smaller ids. */
  merged: number;
  /** No trial is added any more, nor tried again. */
  closed: boolean;
  readonly #open: BookRecord<Start, Value>[];

  constructor(data: TrialBookData<Start, Value> = { merged: 0, closed: false, open: [] }) {
    this.merged = data.merged;
    this.closed = data.closed;
    this.#open = structuredClone([...data.open]);
  }

  get asked(): number {
    return this.merged + this.#open.length;
  }

  /** In the order of their ids. */
  get open(): readonly BookRecord<Start, Value>[] {
    return this.#open;
  }

  /** The next to be merged. */
  get head(): BookRecord<Start, Value> | undefined {
    return this.#open[0];
  }

  count(phase: TrialPhase): number {
    return this.#open.filter((record) => record.phase === phase).length;
  }

  add(start: Start): BookRecord<Start, Value> {
    const record: BookRecord<Start, Value> = { id: this.asked, ...start, attempt: 0, phase: "running", outcome: null };
    this.#open.push(record);
    return record;
  }

  /**
   * The record that an outcome of this attempt settles, or null if the attempt is over.
   *
   * @throws SearchError `UNKNOWN_TRIAL`
   */
  find(id: number, attempt: number): BookRecord<Start, Value> | null {
    if (!Number.isInteger(id) || id < 0 || id >= this.asked)
      throw unknownTrial(id, attempt, "that trial was never asked");
    if (!Number.isInteger(attempt) || attempt < 0) throw unknownTrial(id, attempt, "attempts count from 0");
    const record = this.#open[id - this.merged];
    if (record === undefined) return null;
    if (attempt > record.attempt) throw unknownTrial(id, attempt, `its last attempt is ${record.attempt}`);
    return attempt === record.attempt && record.phase === "running" ? record : null;
  }

  settle(record: Entry<Value>, outcome: Settled<Value>): void {
    move(record, "settled");
    record.outcome = outcome;
  }

  /** After an infrastructure failure. Returns whether the trial will be given again. */
  fail(record: Entry<Value>, maxAttempts: number): boolean {
    if (this.closed || record.attempt + 1 >= maxAttempts) {
      this.settle(record, { kind: "lost" });
      return false;
    }
    move(record, "waiting");
    return true;
  }

  /** The trial teaches nothing, whatever is told of it from now on; `changes` are what remains of its start. */
  abandon(record: BookRecord<Start, Value>, changes: Partial<Start>): void {
    if (record.phase === "settled") record.outcome = { kind: "lost" };
    else this.settle(record, { kind: "lost" });
    Object.assign(record, changes);
  }

  /** Changes what was decided when the trial was asked, because the search has moved on meanwhile. */
  reshape(record: BookRecord<Start, Value>, changes: Partial<Start>): void {
    Object.assign(record, changes);
  }

  /** The first trial that waits to be given again, now running. */
  retry(): BookRecord<Start, Value> | undefined {
    const record = this.#open.find(({ phase }) => phase === "waiting");
    if (record === undefined) return undefined;
    move(record, "running");
    record.attempt += 1;
    return record;
  }

  close(): void {
    this.closed = true;
    for (const record of this.#open) {
      if (record.phase === "waiting") this.settle(record, { kind: "lost" });
    }
  }

  /** Takes the head away, which must be settled. */
  takeHead(): Taken<Start, Value> {
    const record = this.#open.shift();
    if (record === undefined || record.outcome === null) throw new Error("Only a settled trial can be merged");
    this.merged += 1;
    return { record, outcome: record.outcome };
  }

  /**
   * Takes the trials away that may be merged, in the order of asking: a new trial is chosen when exactly those `window` or more before it
   * are merged, no matter how many more are known. Only where `mayHurry` says so, asked anew each time, are others taken: because nothing
   * can be chosen without them.
   */
  *due(window: number, mayHurry: () => boolean): Generator<Taken<Start, Value>> {
    while (this.head?.phase === "settled") {
      if (this.merged >= this.asked - window + 1 && !this.closed && !mayHurry()) return;
      yield this.takeHead();
    }
  }

  toData(): TrialBookData<Start, Value> {
    return { merged: this.merged, closed: this.closed, open: structuredClone(this.#open) };
  }
}

/** Where the trials of a book stand; `block` is why none is given. */
export function bookStatus(book: TrialBook<object, unknown>, block: SearchBlock | null): Omit<SearchStatus, "steps"> {
  return {
    asked: book.asked,
    merged: book.merged,
    inFlight: book.count("running"),
    waiting: book.count("waiting"),
    held: book.count("settled"),
    block,
    done: block !== null && book.open.length === 0,
  };
}

/**
 * What `next` gives, until it gives null or `count` are there.
 *
 * @throws SearchError `INVALID_ARGUMENT`
 */
export function collect<Item>(count: number, next: () => Item | null): Item[] {
  if (!Number.isInteger(count) || count < 0) throw invalidArgument("count", count, "an integer of at least 0");
  const items: Item[] = [];
  while (items.length < count) {
    const item = next();
    if (item === null) break;
    items.push(item);
  }
  return items;
}

function move(record: Entry<unknown>, to: TrialPhase): void {
  if (!TRANSITIONS[record.phase].includes(to))
    throw new Error(`Trial ${record.id} can not go from ${record.phase} to ${to}`);
  record.phase = to;
}

function unknownTrial(id: number, attempt: number, why: string): SearchError {
  return new SearchError(`Trial ${id}, attempt ${attempt}, is unknown: ${why}`, {
    code: "UNKNOWN_TRIAL",
    faultDomain: "bug",
    remedy: "Tell the outcomes of trials that this state has asked for; after a restart, restore the state that asked.",
  });
}
