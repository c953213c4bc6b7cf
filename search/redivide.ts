import type { Changed } from "./algorithm.js";
import {
  Archive,
  type ArchiveData,
  CELL_FIELDS,
  DONE_CELL,
  improves,
  NO_NODE,
  ROOT_CELL,
  ROOT_NODE,
} from "./archive.js";
import type { ArchiveState } from "./archive-state.js";
import { isKey } from "./config.js";
import { invalidArgument } from "./errors.js";

/** What Go-Explore's scripts for Atari pass as `max_recent_frames`. */
const MOST_SAMPLES = 10_000;

/**
 * What the cells of the newest nodes were computed from (`Visit.sample`, or else the cell itself), oldest first: what `searchCells`
 * wants. Ended states are left out.
 */
export function archiveSamples({ archive }: ArchiveState, most = MOST_SAMPLES): string[] {
  const samples: string[] = [];
  for (let node = archive.nodeCount - 1; node >= 0 && samples.length < most; node -= 1) {
    const sample = sampleOf(archive, node);
    if (sample !== null) samples.push(sample);
  }
  return samples.reverse();
}

/**
 * Divides an archive anew: every state that represents a cell goes into the cell that `cellOf` gives it; where several meet, the best
 * one stays by the rule of acceptance, and the checkpoints of the others are released. The tree of nodes, their numbers, paths and scores
 * stay as they are.
 *
 * Counters of cells that become one are added up. Cells of which nothing was kept are forgotten; nodes that represent no cell have none
 * from then on. The new state replaces the one that was passed in, which is used up. Workers begin a new `ArchiveReplica`, and report the
 * new cells.
 *
 * It has to be done between trials and not at a moment of the clock, so that equal seeds give equal trees: after a given number of merged
 * trials, when none is open.
 *
 * Source: dynamic cells, Ecoffet and others, Nature 590, 580-586 (2021); what becomes of the counters is ours.
 *
 * @param cellOf A pure function of what the cell was computed from.
 * @throws SearchError `INVALID_ARGUMENT` where trials are open, the search is not Go-Explore, or a cell is no short string.
 */
export function redivide(state: ArchiveState, cellOf: (sample: string) => string): Changed<ArchiveState> {
  const { archive, book, config } = state;
  if (state.algorithm !== "go-explore")
    throw invalidArgument(
      "state",
      state.algorithm,
      "a state of go-explore: other searches read the cells' counters otherwise",
    );
  if (config.weights.knowledge !== undefined)
    throw invalidArgument("state", "weights.knowledge", "without: what is known of cells says nothing of new ones");
  if (book.open.length > 0) throw invalidArgument("state", `${book.open.length} open trials`, "at rest: no trial open");
  const division = divide(archive, config.optimiseScore, cellOf);
  const old = archive.toData();
  const released: string[] = [];
  const checkpoints = old.checkpoints.map((checkpoint, node) => {
    if (checkpoint === null || division.holders.has(node) || node === ROOT_NODE) return checkpoint;
    released.push(checkpoint);
    return null;
  });
  const data: ArchiveData = {
    ...old,
    // The keys of cells change now: what they were computed from has to be known when the archive is divided again.
    samples: old.checkpoints.flatMap((_, node) => {
      const sample = sampleOf(archive, node);
      return sample === null ? [] : [[node, sample] as const];
    }),
    cellKeys: division.keys,
    cells: mergeCells(old, division),
    nodes: {
      ...old.nodes,
      cell: old.nodes.cell.map((_, node) => division.holders.get(node) ?? DONE_CELL),
      holds: old.nodes.holds.map((_, node) => Number(division.holders.has(node) || old.cells.node[DONE_CELL] === node)),
    },
    checkpoints,
  };
  const held = new Set(state.held);
  for (const checkpoint of released) held.delete(checkpoint);
  return {
    state: { ...state, archive: new Archive(config, data), held },
    changes: { merged: [], accepted: [], released },
  };
}

interface Division {
  /** Of the cells from `ROOT_CELL` on. */
  readonly keys: readonly string[];
  /** The new cell of each old one that had a node. */
  readonly newCells: ReadonlyMap<number, number>;
  /** Nodes that represent a new cell, and which. */
  readonly holders: ReadonlyMap<number, number>;
}

function divide(archive: Archive, optimiseScore: boolean, cellOf: (sample: string) => string): Division {
  const cells = new Map<string, number>();
  const newCells = new Map<number, number>();
  const best: number[] = [];
  const standing = (node: number) => ({ score: archive.nodes.score.get(node), length: archive.nodes.length.get(node) });
  // The root's comes first; then in the order of nodes, which is that in which they were found.
  for (let node = ROOT_NODE; node < archive.nodeCount; node += 1) {
    const old = archive.nodes.cell.get(node);
    const isHolder = old !== DONE_CELL && archive.cells.node.get(old) === node;
    if (!isHolder && node !== ROOT_NODE) continue;
    const key = cellOf(sampleOf(archive, node) ?? "");
    if (!isKey(key)) throw invalidArgument("cellOf", key, "a function that returns short strings");
    const cell = cells.get(key) ?? ROOT_CELL + cells.size;
    cells.set(key, cell);
    if (!isHolder) continue;
    newCells.set(old, cell);
    const known = best[cell];
    const isBetter =
      known === undefined || improves({ offered: standing(node), known: standing(known), optimiseScore });
    if (isBetter) best[cell] = node;
  }
  const holders = new Map<number, number>();
  for (const [cell, node] of best.entries()) if (node !== undefined) holders.set(node, cell);
  return { keys: [...cells.keys()], newCells, holders };
}

/** What the cell of a node was computed from; null where the environment had ended. */
function sampleOf(archive: Archive, node: number): string | null {
  return archive.samples.get(node) ?? archive.key(archive.nodes.cell.get(node));
}

function mergeCells(old: ArchiveData, { keys, newCells, holders }: Division): ArchiveData["cells"] {
  const count = ROOT_CELL + keys.length;
  const fields = CELL_FIELDS.map((field) => [field, Array<number>(count).fill(0)] as const);
  const cells = Object.fromEntries(fields) as Record<(typeof CELL_FIELDS)[number], number[]>;
  for (const field of CELL_FIELDS) (cells[field] as number[])[DONE_CELL] = old.cells[field][DONE_CELL] as number;
  cells.node.fill(NO_NODE, ROOT_CELL);
  for (const [node, cell] of holders) cells.node[cell] = node;
  const found = new Set<number>();
  for (const [from, to] of newCells) {
    for (const field of ["seen", "chosen", "actions", "chosenSinceNew"] as const)
      cells[field][to] = (cells[field][to] as number) + (old.cells[field][from] as number);
    for (const field of ["foundTrial", "foundStep"] as const) {
      const first = old.cells[field][from] as number;
      cells[field][to] = found.has(to) ? Math.min(cells[field][to] as number, first) : first;
    }
    found.add(to);
  }
  return cells;
}
