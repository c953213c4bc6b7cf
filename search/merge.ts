import type { NodeView } from "./algorithm.js";
import type { Archive } from "./archive.js";
import { DONE_CELL, NO_NODE, ROOT_CELL } from "./archive.js";
import type { ArchiveRecord, ArchiveState } from "./archive-state.js";
import type { RecordedVisit, RecordedVisits, Settled } from "./trial-book.js";

export interface Merged {
  readonly accepted: NodeView[];
  readonly released: string[];
}

interface Collected {
  readonly accepted: number[];
  readonly released: string[];
}

/** The walk of one trial while it is merged. */
interface Walk {
  readonly state: ArchiveState;
  readonly trial: number;
  readonly startCell: number;
  readonly merged: Collected;
  /** Cells that were counted as seen in this trial. */
  readonly seen: Set<number>;
  readonly updated: Set<number>;
  /** The last node on the way, and what was done since. */
  node: number;
  actions: string[];
  reward: number;
  length: number;
}

/**
 * Makes an outcome part of the archive, as Go-Explore's code does at the end of a cycle: the start is chosen and seen once
 * more (where it is returned to by a policy, the root is seen instead), each other cell is seen at most once a trial, each step counts for the cell that it arrives in, and a start from
 * which the archive was improved begins anew with its `chosenSinceNew`.
 */
export function mergeOutcome(state: ArchiveState, record: ArchiveRecord, outcome: Settled<RecordedVisits>): Merged {
  const { archive } = state;
  const merged: Collected = { accepted: [], released: [] };
  const firstCell = record.goal === undefined ? record.cell : ROOT_CELL;
  const touched = new Set([record.cell, firstCell]);
  archive.cells.inFlight.add(record.cell, -1);
  if (outcome.kind !== "lost") {
    archive.cells.chosen.add(record.cell, 1);
    archive.cells.chosenSinceNew.add(record.cell, 1);
    archive.cells.seen.add(firstCell, 1);
  }
  if (outcome.kind === "value") {
    const walk = startWalk(state, record, firstCell, merged);
    for (const visit of outcome.visits) takeStep(walk, visit);
    for (const cell of walk.seen) touched.add(cell);
    if (state.config.resetCellOnUpdate) resetCells(archive, walk.updated);
  }
  release(merged, archive.dropHold(record.node));
  for (const cell of touched) archive.reweigh(cell);
  // Only now, because a node that was replaced later in the same trial has lost its checkpoint since.
  return { accepted: merged.accepted.map((node) => archive.view(node)), released: merged.released };
}

function startWalk(state: ArchiveState, record: ArchiveRecord, firstCell: number, merged: Collected): Walk {
  return {
    state,
    trial: record.id,
    startCell: record.cell,
    merged,
    seen: new Set([firstCell]),
    updated: new Set(),
    node: record.node,
    actions: [],
    reward: state.archive.nodes.reward.get(record.node),
    length: state.archive.nodes.length.get(record.node),
  };
}

function takeStep(walk: Walk, visit: RecordedVisit): void {
  const { archive } = walk.state;
  archive.steps += 1;
  walk.length += 1;
  walk.reward += visit.reward;
  walk.actions.push(visit.action);
  const cell = visit.cell === null ? DONE_CELL : archive.internCell(visit.cell, walk.trial);
  if (visit.knowledge !== undefined) archive.noteKnowledge(cell, visit.knowledge);
  if (!walk.seen.has(cell)) {
    walk.seen.add(cell);
    archive.cells.seen.add(cell, 1);
  }
  archive.cells.actions.add(cell, 1);
  archive.landmarks.note(visit.landmarks, archive.steps);
  if (isKeepable(walk, visit) && archive.accepts(cell, visit.score, walk.length)) accept(walk, visit, cell);
  else release(walk.merged, visit.checkpoint);
}

function isKeepable({ state }: Walk, visit: RecordedVisit): boolean {
  if (state.archive.nodeCount >= state.config.maxNodes) return false;
  return visit.checkpoint !== null || visit.cell === null || !state.needsCheckpoint;
}

function accept(walk: Walk, visit: RecordedVisit, cell: number): void {
  const { archive } = walk.state;
  const replaced = archive.cells.node.get(cell);
  const hasEnded = visit.cell === null;
  // Nothing can start from a state that has ended.
  if (hasEnded) release(walk.merged, visit.checkpoint);
  const node = archive.addNode({
    parent: walk.node,
    cell,
    score: visit.score,
    reward: walk.reward,
    length: walk.length,
    trial: walk.trial,
    checkpoint: hasEnded ? null : visit.checkpoint,
    actions: walk.actions,
    sample: hasEnded ? null : (visit.sample ?? null),
    verified: visit.verified ?? null,
  });
  if (replaced !== NO_NODE) release(walk.merged, archive.dropHold(replaced));
  archive.cells.chosenSinceNew.set(walk.startCell, 0);
  walk.merged.accepted.push(node);
  walk.updated.add(cell);
  walk.node = node;
  walk.actions = [];
}

function resetCells(archive: Archive, cells: ReadonlySet<number>): void {
  for (const cell of cells) {
    archive.cells.chosen.set(cell, 0);
    archive.cells.chosenSinceNew.set(cell, 0);
    archive.cells.seen.set(cell, 0);
    archive.cells.actions.set(cell, 0);
  }
}

function release(merged: Collected, checkpoint: string | null): void {
  if (checkpoint !== null) merged.released.push(checkpoint);
}
