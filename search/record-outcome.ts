import { recordKnowledge } from "./cell-knowledge.js";
import { isKey, sortedLandmarks } from "./config.js";
import { DEFAULTS } from "./defaults.js";
import { invalidOutcome } from "./errors.js";
import type { RolloutOutcome, Visit } from "./rollout.js";
import type { RecordedVisit } from "./trial-book.js";

const KEY = `a string of at most ${DEFAULTS.maxKeyLength} characters`;

export interface VisitLimits {
  /** The trial's. */
  readonly steps: number;
  /** Sum of rewards where the trial started. */
  readonly reward: number;
  /** Whether a checkpoint with this name is kept by somebody. */
  readonly isHeld: (checkpoint: string) => boolean;
}

/**
 * Checks what was told of a trial and copies it.
 *
 * @throws SearchError `INVALID_OUTCOME` naming the field.
 */
export function recordVisits(visits: unknown, limits: VisitLimits): RecordedVisit[] {
  if (!Array.isArray(visits)) throw invalidOutcome("visits", visits, "an array");
  if (visits.length > limits.steps) throw invalidOutcome("visits.length", visits.length, `at most ${limits.steps}`);
  const recorded: RecordedVisit[] = [];
  const checkpoints = new Set<string>();
  let reward = limits.reward;
  let ended = false;
  for (const [index, visit] of (visits as readonly unknown[]).entries()) {
    const field = `visits[${index}]`;
    if (ended) throw invalidOutcome(field, visit, "absent: the visit before it has terminated");
    checkVisit(visit, field);
    reward += visit.reward;
    if (!Number.isFinite(reward))
      throw invalidOutcome(`${field}.reward`, visit.reward, "small enough for a finite sum of rewards");
    const checkpoint = visit.candidate?.checkpoint ?? null;
    if (checkpoint !== null) {
      if (checkpoints.has(checkpoint) || limits.isHeld(checkpoint)) {
        throw invalidOutcome(`${field}.candidate.checkpoint`, checkpoint, "a name that no other checkpoint has");
      }
      checkpoints.add(checkpoint);
    }
    ended = visit.terminated;
    recorded.push({
      action: visit.action,
      reward: visit.reward,
      cell: visit.terminated ? null : visit.cell,
      score: visit.score ?? reward,
      checkpoint,
      landmarks: sortedLandmarks(visit.landmarks ?? {}),
      ...(visit.sample === undefined ? {} : { sample: visit.sample }),
      ...(visit.verified === undefined ? {} : { verified: visit.verified }),
      ...(visit.knowledge === undefined
        ? {}
        : { knowledge: recordKnowledge(visit.knowledge, `${field}.knowledge`, invalidOutcome) }),
    });
  }
  return recorded;
}

/** Checkpoints that an outcome mentions, also one that is not well formed. */
export function checkpointsOf(outcome: RolloutOutcome): string[] {
  const visits: unknown = outcome.kind === "value" ? outcome.visits : [];
  if (!Array.isArray(visits)) return [];
  const checkpoints = (visits as readonly (Partial<Visit> | null)[]).map((visit) => visit?.candidate?.checkpoint);
  return checkpoints.filter((checkpoint) => typeof checkpoint === "string");
}

function checkVisit(visit: unknown, field: string): asserts visit is Visit {
  if (typeof visit !== "object" || visit === null) throw invalidOutcome(field, visit, "an object");
  const { action, reward, cell, terminated, score, candidate, landmarks, sample, verified } = visit as Partial<
    Record<keyof Visit, unknown>
  >;
  if (!isKey(action)) throw invalidOutcome(`${field}.action`, action, KEY);
  if (!isKey(cell)) throw invalidOutcome(`${field}.cell`, cell, KEY);
  if (!Number.isFinite(reward)) throw invalidOutcome(`${field}.reward`, reward, "a finite number");
  if (typeof terminated !== "boolean") throw invalidOutcome(`${field}.terminated`, terminated, "true or false");
  if (score !== undefined && !Number.isFinite(score)) throw invalidOutcome(`${field}.score`, score, "a finite number");
  if (sample !== undefined && !isKey(sample)) throw invalidOutcome(`${field}.sample`, sample, KEY);
  if (verified !== undefined && !isKey(verified)) throw invalidOutcome(`${field}.verified`, verified, KEY);
  if (candidate !== undefined) checkCandidate(candidate, `${field}.candidate`);
  if (landmarks !== undefined) checkLandmarks(landmarks, `${field}.landmarks`);
}

function checkCandidate(candidate: unknown, field: string): void {
  if (typeof candidate !== "object" || candidate === null) throw invalidOutcome(field, candidate, "an object");
  const { checkpoint } = candidate as { readonly checkpoint?: unknown };
  if (!isKey(checkpoint)) throw invalidOutcome(`${field}.checkpoint`, checkpoint, KEY);
}

function checkLandmarks(landmarks: unknown, field: string): void {
  if (typeof landmarks !== "object" || landmarks === null) throw invalidOutcome(field, landmarks, "an object");
  for (const [kind, key] of Object.entries(landmarks)) {
    if (!isKey(kind))
      throw invalidOutcome(field, kind, `an object with keys of at most ${DEFAULTS.maxKeyLength} characters`);
    if (!isKey(key)) throw invalidOutcome(`${field}.${kind}`, key, KEY);
  }
}
