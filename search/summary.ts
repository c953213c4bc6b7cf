import { DONE_CELL, NO_NODE } from "./archive.js";
import type { ArchiveState } from "./archive-state.js";

/** An archive in a few numbers. */
export interface ArchiveSummary {
  /** Different cells seen; ended states are no cell. */
  readonly cells: number;
  /** Cells that are represented by a node. */
  readonly archived: number;
  readonly nodes: number;
  readonly bestScore: number;
  /** Longest path to a node, in steps. */
  readonly depth: number;
  readonly steps: number;
  readonly trials: number;
  /** Different things seen of each kind, in the order of their discovery. */
  readonly landmarks: Readonly<Record<string, number>>;
}

/** O(cells + nodes). */
export function summarise(state: ArchiveState): ArchiveSummary {
  const { archive, book } = state;
  let archived = 0;
  for (let cell = DONE_CELL + 1; cell < archive.cellCount; cell += 1)
    if (archive.cells.node.get(cell) !== NO_NODE) archived += 1;
  let depth = 0;
  for (let node = 0; node < archive.nodeCount; node += 1) depth = Math.max(depth, archive.nodes.length.get(node));
  return {
    cells: archive.cellCount - 1,
    archived,
    nodes: archive.nodeCount,
    bestScore: archive.nodes.score.get(archive.best),
    depth,
    steps: archive.steps,
    trials: book.merged,
    landmarks: Object.fromEntries(archive.landmarks.counts()),
  };
}
