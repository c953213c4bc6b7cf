import { Column } from "./column.js";
import { NameTable } from "./name-table.js";

interface LandmarkKind {
  readonly kind: string;
  readonly keys: NameTable;
  /** Count of merged steps at which each was first seen. */
  readonly foundStep: Column;
}

export interface LandmarkData {
  readonly kind: string;
  readonly keys: readonly string[];
  readonly foundStep: readonly number[];
}

/** Different things seen of each kind, in the order of their discovery. */
export class LandmarkTable {
  readonly #kinds: LandmarkKind[];

  constructor(data: readonly LandmarkData[] = []) {
    this.#kinds = data.map(({ kind, keys, foundStep }) => ({
      kind,
      keys: new NameTable(keys),
      foundStep: new Column(foundStep),
    }));
  }

  note(landmarks: readonly (readonly [kind: string, key: string])[], step: number): void {
    for (const [kind, key] of landmarks) {
      let entry = this.#kinds.find((candidate) => candidate.kind === kind);
      if (entry === undefined) {
        entry = { kind, keys: new NameTable(), foundStep: new Column() };
        this.#kinds.push(entry);
      }
      if (entry.keys.find(key) !== undefined) continue;
      entry.keys.intern(key);
      entry.foundStep.push(step);
    }
  }

  counts(): readonly (readonly [kind: string, count: number])[] {
    return this.#kinds.map(({ kind, keys }) => [kind, keys.size] as const);
  }

  toData(): LandmarkData[] {
    return this.#kinds.map(({ kind, keys, foundStep }) => ({
      kind,
      keys: keys.toArray(),
      foundStep: foundStep.toArray(),
    }));
  }
}
