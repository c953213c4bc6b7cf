import { type ArchiveData, CELL_FIELDS, NODE_FIELDS } from "./archive.js";
import type { ArchiveBookData, SerialisedArchive } from "./archive-state.js";
import { recordKnowledge } from "./cell-knowledge.js";
import { COUNT, DataCheck, type Fields } from "./data-check.js";
import type { RecordedVisit } from "./trial-book.js";

/** Of serialised archives; raised when an older reader would go wrong. */
export const FORMAT = 1;

/**
 * Whether a value can be what `serialise` returned. A damaged file must fail here and not as a wrong choice later, so every
 * index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialised(serialised: unknown, name: string): SerialisedArchive {
  new ArchiveCheck(name).state(serialised);
  return serialised as SerialisedArchive;
}

interface Sizes {
  readonly cells: number;
  readonly nodes: number;
}

class ArchiveCheck extends DataCheck {
  state(value: unknown): void {
    const { config, archive, book } = this.header<SerialisedArchive>(value, FORMAT);
    const { root, weights } = this.object<SerialisedArchive["config"]>(config, "config");
    this.object(root, "config.root");
    this.object(weights, "config.weights");
    this.#trials(book, this.#archive(this.object<ArchiveData>(archive, "archive")));
  }

  #archive(archive: Fields<ArchiveData>): Sizes {
    const cells = this.strings(archive.cellKeys, "archive.cellKeys").length + 1;
    const nodes = this.list(archive.checkpoints, "archive.checkpoints").length;
    const actionNames = this.strings(archive.actionNames, "archive.actionNames").length;
    const pathActions = this.list(archive.pathActions, "archive.pathActions");
    if (cells < 2 || nodes < 1) throw this.incompatible("has no root");
    const cell = this.columns(archive.cells, CELL_FIELDS, { length: cells, field: "archive.cells" });
    const node = this.columns(archive.nodes, NODE_FIELDS, { length: nodes, field: "archive.nodes" });
    this.indexes(cell.node, { from: -1, to: nodes }, "archive.cells.node");
    this.indexes(node.cell, { from: 0, to: cells }, "archive.nodes.cell");
    this.indexes(node.replaced, { from: -1, to: nodes }, "archive.nodes.replaced");
    this.indexes(node.pathEnd, { from: 0, to: pathActions.length + 1 }, "archive.nodes.pathEnd");
    this.indexes(pathActions, { from: 0, to: actionNames }, "archive.pathActions");
    this.indexes([archive.best], { from: 0, to: nodes }, "archive.best");
    this.indexes([archive.steps], COUNT, "archive.steps");
    for (const [index, parent] of node.parent.entries()) {
      // A parent is older than its child, so that every path ends at the root.
      this.indexes([parent], { from: index === 0 ? -1 : 0, to: index }, `archive.nodes.parent[${index}]`);
    }
    for (const landmark of this.list(archive.landmarks, "archive.landmarks")) {
      const { kind, keys, foundStep } = this.object<ArchiveData["landmarks"][number]>(landmark, "archive.landmarks");
      this.strings([kind], "archive.landmarks.kind");
      const { length } = this.strings(keys, "archive.landmarks.keys");
      this.numbers(foundStep, length, "archive.landmarks.foundStep");
    }
    this.#texts(archive.samples, nodes, "archive.samples");
    this.#texts(archive.verified, nodes, "archive.verified");
    for (const entry of this.list(archive.knowledge ?? [], "archive.knowledge")) {
      const [known, knowledge] = this.list(entry, "archive.knowledge");
      this.indexes([known], { from: 1, to: cells }, "archive.knowledge");
      this.#knowledge(knowledge, "archive.knowledge");
    }
    return { cells, nodes };
  }

  /** Texts by node, absent where there are none. */
  #texts(value: unknown, nodes: number, field: string): void {
    if (value === undefined) return;
    for (const entry of this.list(value, field)) {
      const [node, text] = this.list(entry, field);
      this.indexes([node], { from: 0, to: nodes }, field);
      this.strings([text], field);
    }
  }

  #knowledge(value: unknown, field: string): void {
    recordKnowledge(value, field, (at) => this.incompatible(`has no knowledge of a cell at ${at}`));
  }

  #trials(book: unknown, sizes: Sizes): void {
    for (const [record, field] of this.book(book)) {
      const { node, cell, goal, steps, version, outcome } = record as Fields<ArchiveBookData["open"][number]>;
      if (goal !== undefined) this.indexes([goal], { from: 0, to: sizes.nodes }, `${field}.goal`);
      this.indexes([node], { from: 0, to: sizes.nodes }, `${field}.node`);
      this.indexes([cell], { from: 1, to: sizes.cells }, `${field}.cell`);
      this.indexes([steps, version], COUNT, field);
      if (outcome !== null) this.#outcome(outcome, `${field}.outcome`);
    }
  }

  #outcome(value: unknown, field: string): void {
    const { kind, visits } = this.object<{ readonly kind: unknown; readonly visits: unknown }>(value, field);
    if (kind === "rejected" || kind === "lost") return;
    if (kind !== "value") throw this.incompatible(`has an unknown outcome at ${field}`);
    for (const entry of this.list(visits, `${field}.visits`)) {
      const visit = this.object<Record<keyof RecordedVisit, unknown>>(entry, `${field}.visits`);
      const texts = [visit.cell, visit.checkpoint, visit.sample, visit.verified].map((text) => text ?? "");
      this.strings([visit.action, ...texts], `${field}.visits`);
      this.numbers([visit.reward, visit.score], 2, `${field}.visits`);
      if (visit.knowledge !== undefined) this.#knowledge(visit.knowledge, `${field}.visits.knowledge`);
      for (const pair of this.list(visit.landmarks, `${field}.visits.landmarks`)) {
        const { length } = this.strings(pair, `${field}.visits.landmarks`);
        if (length !== 2) throw this.incompatible(`has no kind and key at ${field}.visits.landmarks`);
      }
    }
  }
}
