import type { HalvingConfig } from "./config.js";

/**
 * - `running`: asked to go to its rung.
 * - `judged`: has a score there and may be promoted.
 * - `out`: rejected or lost on its way; it counts for nothing.
 */
export type Standing = "running" | "judged" | "out";

/** One rollout. */
export interface Candidate {
  /** Index of the rung that it stands on, or is on its way to. */
  readonly rung: number;
  readonly standing: Standing;
  /** At the last rung that it reached; null before. */
  readonly score: number | null;
  readonly checkpoint: string | null;
  /** Scores at the rungs that it left behind, from the lowest. */
  readonly past: readonly number[];
}

/** A rung's scores, those of candidates that have gone on included. */
interface Judged {
  readonly candidate: number;
  readonly score: number;
  readonly isHere: boolean;
}

/** Where the next trial goes: a candidate that exists and goes on to `rung`, or a new one for rung 0. */
export interface Step {
  readonly candidate: number;
  readonly rung: number;
}

export type Ladder = Pick<HalvingConfig, "candidates" | "rungs" | "factor">;

/**
 * Asynchronous halving: from the highest rung down, the best candidate that is in the top 1 / factor of all that were judged there goes
 * on; where there is none, a new one begins.
 */
export function nextAsynchronous(ladder: Ladder, candidates: readonly Candidate[]): Step | null {
  for (let rung = ladder.rungs.length - 2; rung >= 0; rung -= 1) {
    const judged = judgedAt(candidates, rung);
    const top = judged.slice(0, Math.floor(judged.length / ladder.factor));
    const next = top.find(({ isHere }) => isHere);
    if (next !== undefined) return { candidate: next.candidate, rung: rung + 1 };
  }
  return beginNew(ladder, candidates);
}

/** Halving in rounds: the best 1 / factor of a rung, at least one, go on when nobody is on the way to it any more. */
export function nextInRounds(ladder: Ladder, candidates: readonly Candidate[]): Step | null {
  const fresh = beginNew(ladder, candidates);
  if (fresh !== null) return fresh;
  for (let rung = 0; rung < ladder.rungs.length - 1; rung += 1) {
    if (candidates.some((candidate) => candidate.rung === rung && candidate.standing === "running")) return null;
    const judged = judgedAt(candidates, rung);
    const top = judged.slice(0, Math.max(1, Math.floor(judged.length / ladder.factor)));
    const next = top.find(({ isHere }) => isHere);
    if (next !== undefined) return { candidate: next.candidate, rung: rung + 1 };
  }
  return null;
}

function beginNew(ladder: Ladder, candidates: readonly Candidate[]): Step | null {
  return candidates.length < ladder.candidates ? { candidate: candidates.length, rung: 0 } : null;
}

/** Greatest score first; of equals the one that began first. */
function judgedAt(candidates: readonly Candidate[], rung: number): Judged[] {
  const judged: Judged[] = [];
  for (const [candidate, { rung: at, standing, score, past }] of candidates.entries()) {
    const isHere = at === rung && standing === "judged";
    const known = isHere ? score : past[rung];
    if (known !== undefined && known !== null) judged.push({ candidate, score: known, isHere });
  }
  return judged.sort((one, two) =>
    one.score === two.score ? one.candidate - two.candidate : one.score > two.score ? -1 : 1,
  );
}
