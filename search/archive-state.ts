import { type Archive, type ArchiveData, ROOT_NODE } from "./archive.js";
import type { ArchiveConfig } from "./config.js";
import type { BookRecord, RecordedVisits, TrialBook, TrialBookData } from "./trial-book.js";

/** What tells one search over an archive from another. */
export interface ArchiveStrategy {
  readonly name: string;
  /** Whether a state is kept only where its checkpoint is: what nobody can start from is then no node. */
  readonly needsCheckpoint: boolean;
  /** Where the trial starts, or null if there is nothing to start from. Changes nothing. */
  choose(state: ArchiveState, trial: number): Start | null;
}

/** What a strategy chose: a cell, and where its trial begins. */
export interface Start {
  readonly cell: number;
  /** Where the trial begins. */
  readonly node: number;
  /** The node of the cell, where the trial goes there from the root by a policy. */
  readonly goal?: number;
}

/** What is decided when a trial is asked. */
export interface RolloutStart extends Start {
  readonly steps: number;
  /** Count of merged trials at that moment. */
  readonly version: number;
}

export type ArchiveBook = TrialBook<RolloutStart, RecordedVisits>;
export type ArchiveBookData = TrialBookData<RolloutStart, RecordedVisits>;
export type ArchiveRecord = BookRecord<RolloutStart, RecordedVisits>;

/** Opaque: use the functions of the search that made it, and those of this folder that take it. */
export interface ArchiveState {
  readonly algorithm: string;
  readonly config: ArchiveConfig;
  readonly needsCheckpoint: boolean;
  readonly seed: number;
  readonly archive: Archive;
  readonly book: ArchiveBook;
  /** Checkpoints that the search needs, the root's apart. */
  readonly held: Set<string>;
  /** Steps of all trials that are asked and not merged. */
  plannedSteps: number;
}

/** What `serialise` returns: plain data that JSON and MessagePack carry exactly. */
export interface SerialisedArchive {
  readonly format: number;
  readonly algorithm: string;
  readonly config: ArchiveConfig;
  readonly seed: number;
  readonly archive: ArchiveData;
  readonly book: ArchiveBookData;
}

/** Checkpoints that the search needs, the root's apart: to find those that nobody needs after a crash. In no order. */
export function heldCheckpoints(state: ArchiveState): string[] {
  return [...state.held];
}

/** The same, found anew. */
export function neededCheckpoints(archive: Archive, book: ArchiveBook): string[] {
  const needed: string[] = [];
  for (let node = ROOT_NODE + 1; node < archive.nodeCount; node += 1) {
    const checkpoint = archive.checkpoint(node);
    if (checkpoint !== null) needed.push(checkpoint);
  }
  for (const { outcome } of book.open) {
    if (outcome?.kind !== "value") continue;
    for (const { checkpoint } of outcome.visits) if (checkpoint !== null) needed.push(checkpoint);
  }
  return needed;
}

/**
 * The command that showed the score of a node to be true, as the trial that found it told (`Visit.verified`); null if it told none.
 * `verifiedBy(state, search.best(state).node)` is how to check a solution again.
 */
export function verifiedBy({ archive }: ArchiveState, node: number): string | null {
  return archive.verified.get(node) ?? null;
}

/** Whether somebody needs a checkpoint of this name. */
export function isHeld({ config, held }: ArchiveState, checkpoint: string): boolean {
  return checkpoint === config.root.checkpoint || held.has(checkpoint);
}
