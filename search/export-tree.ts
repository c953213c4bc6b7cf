import { type Archive, DONE_CELL, NO_NODE } from "./archive.js";
import type { ArchiveState } from "./archive-state.js";

/** A cell, with its counters as they are. */
export interface ExportedCell {
  /** null: the states in which the environment had ended. */
  readonly cell: string | null;
  /** null where it was seen and nothing was kept. */
  readonly node: number | null;
  readonly seen: number;
  readonly chosen: number;
  readonly chosenSinceNew: number;
  readonly actions: number;
  readonly weight: number;
  /** null for the root. */
  readonly foundTrial: number | null;
  readonly foundStep: number;
}

/** A node, without the name of its checkpoint. */
export interface ExportedNode {
  readonly node: number;
  readonly parent: number | null;
  readonly cell: string | null;
  readonly score: number;
  readonly reward: number;
  readonly length: number;
  readonly trial: number | null;
  /** Whether it represents its cell. */
  readonly archived: boolean;
  /** From the parent to this node. */
  readonly actions: readonly string[];
}

/** See `exportTree`. */
export interface ExportedTree {
  readonly format: 1;
  readonly algorithm: string;
  readonly seed: number;
  readonly trials: number;
  readonly steps: number;
  readonly best: number;
  readonly cells: readonly ExportedCell[];
  readonly nodes: readonly ExportedNode[];
  readonly landmarks: readonly {
    readonly kind: string;
    readonly keys: readonly string[];
    readonly foundStep: readonly number[];
  }[];
}

/**
 * The tree as plain data. Keys come in a fixed order and nothing that differs between two runs of the same seed and the same
 * outcomes is in it (no checkpoint names): `JSON.stringify` of two such trees is equal, byte for byte.
 */
export function exportTree(state: ArchiveState): ExportedTree {
  const { archive, book } = state;
  return {
    format: 1,
    algorithm: state.algorithm,
    seed: state.seed,
    trials: book.merged,
    steps: archive.steps,
    best: archive.best,
    cells: indexes(archive.cellCount)
      .map((cell) => exportCell(archive, cell))
      .filter(({ cell, seen }) => cell !== null || seen > 0),
    nodes: indexes(archive.nodeCount).map((node) => exportNode(archive, node)),
    landmarks: archive.landmarks.toData(),
  };
}

function exportCell(archive: Archive, cell: number): ExportedCell {
  const { cells } = archive;
  const node = cells.node.get(cell);
  const foundTrial = cells.foundTrial.get(cell);
  return {
    cell: archive.key(cell),
    node: node === NO_NODE ? null : node,
    seen: cells.seen.get(cell),
    chosen: cells.chosen.get(cell),
    chosenSinceNew: cells.chosenSinceNew.get(cell),
    actions: cells.actions.get(cell),
    weight: archive.weight(cell),
    foundTrial: foundTrial < 0 || cell === DONE_CELL ? null : foundTrial,
    foundStep: cells.foundStep.get(cell),
  };
}

function exportNode(archive: Archive, node: number): ExportedNode {
  const { parent, cell, score, reward, length, trial } = archive.view(node);
  const archived = archive.cells.node.get(archive.nodes.cell.get(node)) === node;
  return { node, parent, cell, score, reward, length, trial, archived, actions: archive.actions(node) };
}

function indexes(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
