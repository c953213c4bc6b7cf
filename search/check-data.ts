import { type ArchiveData, CELL_FIELDS, NODE_FIELDS } from "./archive.js";
import type { SerialisedArchive } from "./archive-state.js";
import { checkSeed } from "./draws.js";
import { SearchError } from "./errors.js";
import type { TrialBookData } from "./trial-book.js";

export const FORMAT = 1;

const PHASES: readonly unknown[] = ["running", "waiting", "settled"];

type Fields<Data> = Readonly<Partial<Record<keyof Data, unknown>>>;

/**
 * Whether a value can be what `serialise` returned. A damaged file must fail here and not as a wrong choice later, so every
 * index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialised(serialised: unknown, name: string): SerialisedArchive {
  new DataCheck(name).state(serialised);
  return serialised as SerialisedArchive;
}

interface Range {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

interface Sizes {
  readonly cells: number;
  readonly nodes: number;
}

const COUNT: Range = { from: 0, to: Number.MAX_SAFE_INTEGER };

class DataCheck {
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

  state(value: unknown): void {
    const { format, algorithm, seed, config, archive, book } = this.#object<SerialisedArchive>(value, "state");
    if (format !== FORMAT) throw this.#incompatible(`has format ${String(format)}, and not ${FORMAT}`);
    if (algorithm !== this.#name) throw this.#incompatible("is of another search");
    try {
      checkSeed(seed);
    } catch (error) {
      throw this.#incompatible("has no seed", error);
    }
    const { root, weights } = this.#object<SerialisedArchive["config"]>(config, "config");
    this.#object(root, "config.root");
    this.#object(weights, "config.weights");
    this.#book(this.#object<TrialBookData>(book, "book"), this.#archive(this.#object<ArchiveData>(archive, "archive")));
  }

  #archive(archive: Fields<ArchiveData>): Sizes {
    const cells = this.#strings(archive.cellKeys, "archive.cellKeys").length + 1;
    const nodes = this.#list(archive.checkpoints, "archive.checkpoints").length;
    const actionNames = this.#strings(archive.actionNames, "archive.actionNames").length;
    const pathActions = this.#list(archive.pathActions, "archive.pathActions");
    if (cells < 2 || nodes < 1) throw this.#incompatible("has no root");
    const cell = this.#columns(archive.cells, CELL_FIELDS, { length: cells, field: "archive.cells" });
    const node = this.#columns(archive.nodes, NODE_FIELDS, { length: nodes, field: "archive.nodes" });
    this.#indexes(cell.node, { from: -1, to: nodes }, "archive.cells.node");
    this.#indexes(node.cell, { from: 0, to: cells }, "archive.nodes.cell");
    this.#indexes(node.replaced, { from: -1, to: nodes }, "archive.nodes.replaced");
    this.#indexes(node.pathEnd, { from: 0, to: pathActions.length + 1 }, "archive.nodes.pathEnd");
    this.#indexes(pathActions, { from: 0, to: actionNames }, "archive.pathActions");
    this.#indexes([archive.best], { from: 0, to: nodes }, "archive.best");
    this.#indexes([archive.steps], COUNT, "archive.steps");
    for (const [index, parent] of node.parent.entries()) {
      // A parent is older than its child, so that every path ends at the root.
      this.#indexes([parent], { from: index === 0 ? -1 : 0, to: index }, `archive.nodes.parent[${index}]`);
    }
    for (const landmark of this.#list(archive.landmarks, "archive.landmarks")) {
      const { kind, keys, foundStep } = this.#object<ArchiveData["landmarks"][number]>(landmark, "archive.landmarks");
      this.#strings([kind], "archive.landmarks.kind");
      const { length } = this.#strings(keys, "archive.landmarks.keys");
      this.#numbers(foundStep, length, "archive.landmarks.foundStep");
    }
    return { cells, nodes };
  }

  #book({ merged, closed, open }: Fields<TrialBookData>, sizes: Sizes): void {
    this.#indexes([merged], COUNT, "book.merged");
    if (typeof closed !== "boolean") throw this.#incompatible("has no truth value at book.closed");
    for (const [index, entry] of this.#list(open, "book.open").entries()) {
      const field = `book.open[${index}]`;
      const record = this.#object<TrialBookData["open"][number]>(entry, field);
      if (record.id !== (merged as number) + index) throw this.#incompatible(`has trials out of order at ${field}`);
      this.#indexes([record.node], { from: 0, to: sizes.nodes }, `${field}.node`);
      this.#indexes([record.cell], { from: 1, to: sizes.cells }, `${field}.cell`);
      this.#indexes([record.steps, record.version, record.attempt], COUNT, field);
      if (!PHASES.includes(record.phase)) throw this.#incompatible(`has an unknown phase at ${field}`);
      if ((record.phase === "settled") !== (record.outcome !== null)) {
        throw this.#incompatible(`has a phase that does not fit the outcome at ${field}`);
      }
      if (record.outcome !== null) this.#outcome(record.outcome, `${field}.outcome`);
    }
  }

  #outcome(value: unknown, field: string): void {
    const { kind, visits } = this.#object<{ readonly kind: unknown; readonly visits: unknown }>(value, field);
    if (kind === "rejected" || kind === "lost") return;
    if (kind !== "value") throw this.#incompatible(`has an unknown outcome at ${field}`);
    for (const entry of this.#list(visits, `${field}.visits`)) {
      const visit = this.#object<Record<"action" | "reward" | "cell" | "score" | "checkpoint" | "landmarks", unknown>>(
        entry,
        `${field}.visits`,
      );
      this.#strings([visit.action, visit.cell ?? "", visit.checkpoint ?? ""], `${field}.visits`);
      this.#numbers([visit.reward, visit.score], 2, `${field}.visits`);
      for (const pair of this.#list(visit.landmarks, `${field}.visits.landmarks`)) {
        const { length } = this.#strings(pair, `${field}.visits.landmarks`);
        if (length !== 2) throw this.#incompatible(`has no kind and key at ${field}.visits.landmarks`);
      }
    }
  }

  #columns<Field extends string>(
    value: unknown,
    fields: readonly Field[],
    { length, field }: { readonly length: number; readonly field: string },
  ): Readonly<Record<Field, readonly number[]>> {
    const columns = this.#object<Record<Field, unknown>>(value, field);
    for (const name of fields) this.#numbers(columns[name], length, `${field}.${name}`);
    return columns as Readonly<Record<Field, readonly number[]>>;
  }

  #object<Data>(value: unknown, field: string): Fields<Data> {
    if (typeof value !== "object" || value === null) throw this.#incompatible(`has no object at ${field}`);
    return value as Fields<Data>;
  }

  #list(value: unknown, field: string): readonly unknown[] {
    if (!Array.isArray(value)) throw this.#incompatible(`has no list at ${field}`);
    return value as readonly unknown[];
  }

  #strings(value: unknown, field: string): readonly unknown[] {
    const values = this.#list(value, field);
    if (values.every((entry) => typeof entry === "string")) return values;
    throw this.#incompatible(`has something else than strings at ${field}`);
  }

  #numbers(value: unknown, length: number, field: string): void {
    const values = this.#list(value, field);
    if (values.length === length && values.every((entry) => Number.isFinite(entry))) return;
    throw this.#incompatible(`has no list of ${length} numbers at ${field}`);
  }

  #indexes(values: readonly unknown[], { from, to }: Range, field: string): void {
    for (const value of values) {
      if (Number.isInteger(value) && (value as number) >= from && (value as number) < to) continue;
      throw this.#incompatible(`has no integer from ${from} to ${to - 1} at ${field}`);
    }
  }

  #incompatible(what: string, cause?: unknown): SearchError {
    return new SearchError(`The serialised state of ${this.#name} ${what}`, {
      code: "INCOMPATIBLE_STATE",
      faultDomain: "user",
      remedy: `Give what serialise() of ${this.#name} returned, unchanged; a state of another version has to be made anew.`,
      cause,
    });
  }
}
