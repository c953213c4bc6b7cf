import type { SearchBlock } from "../algorithm.js";
import { isKey } from "../config.js";
import { checkSeed, drawSeed } from "../draws.js";
import { invalidOutcome } from "../errors.js";
import { bookStatus, collect, TrialBook } from "../trial-book.js";
import { checkSerialisedHalving, HALVING_FORMAT } from "./check-data.js";
import { type HalvingOptions, resolveHalving } from "./config.js";
import type {
  HalvingOutcome,
  HalvingRecord,
  HalvingSearch,
  HalvingState,
  HalvingTrial,
  Judgement,
  RankedRollout,
  SerialisedHalving,
} from "./halving-state.js";
import { type Candidate, type Ladder, nextAsynchronous, nextInRounds, type Step } from "./ladder.js";

type Next = (ladder: Ladder, candidates: readonly Candidate[]) => Step | null;

interface MutableChanges {
  merged: number[];
  released: string[];
}

/**
 * Many rollouts begin, the better part of them goes on, in rounds: all are judged after equal steps before any goes further.
 *
 * Sources: Karnin, Koren, Somekh (2013); Jamieson and Talwalkar, arXiv 1502.07943.
 */
export const successiveHalving: HalvingSearch = createHalving("successive-halving", nextInRounds, true);

/**
 * The same without rounds: whoever is among the better part of those judged so far goes on at once, so that nobody waits for the slowest.
 *
 * Source: Li and others, "A system for massively parallel hyperparameter tuning" (ASHA), arXiv 1810.05934.
 */
export const asha: HalvingSearch = createHalving("asha", nextAsynchronous, false);

function createHalving(name: string, next: Next, needsCandidates: boolean): HalvingSearch {
  return Object.freeze({
    name,
    init: (options: HalvingOptions, seed: number): HalvingState => {
      const config = resolveHalving(options, needsCandidates);
      return { config, seed: checkSeed(seed), book: new TrialBook(), candidates: [], steps: 0, isStuck: false };
    },
    ask: (state: HalvingState, count: number) => {
      const changes = noChanges();
      const records = collect(count, () => state.book.retry() ?? issue(state, next, changes));
      const trials = records.map((record) => toTrial(state, record));
      advance(state, changes);
      return { state, trials, changes };
    },
    tell,
    finish: (state: HalvingState) => {
      const changes = noChanges();
      state.book.close();
      advance(state, changes);
      return { state, changes };
    },
    outstanding: (state: HalvingState) =>
      state.book.open.filter(({ phase }) => phase === "running").map((record) => toTrial(state, record)),
    status: (state: HalvingState) => {
      const { book, steps } = state;
      return { ...bookStatus(book, blockOf(state, next)), steps };
    },
    best: (state: HalvingState) => ranking(state)[0] ?? null,
    ranking,
    serialise: ({ config, seed, book, candidates, steps }: HalvingState): SerialisedHalving => {
      return {
        format: HALVING_FORMAT,
        algorithm: name,
        config: structuredClone(config),
        seed,
        book: book.toData(),
        candidates: structuredClone(candidates),
        steps,
      };
    },
    restore: (serialised: unknown): HalvingState => {
      const { config, seed, book, candidates, steps } = checkSerialisedHalving(serialised, name);
      return {
        config,
        seed,
        book: new TrialBook(book),
        candidates: structuredClone([...candidates]),
        steps,
        isStuck: false,
      };
    },
  });
}

function blockOf(state: HalvingState, next: Next): SearchBlock | null {
  const { book, config } = state;
  if (book.closed) return "finished";
  if (book.asked >= config.maxTrials) return "trials";
  if (book.open.length >= config.window) return "window";
  return next(config, state.candidates) === null ? "nothing-to-choose" : null;
}

function issue(state: HalvingState, next: Next, changes: MutableChanges): HalvingRecord | null {
  for (;;) {
    advance(state, changes);
    const block = blockOf(state, next);
    if (block === null) return begin(state, next(state.config, state.candidates) as Step);
    state.isStuck = block === "nothing-to-choose";
    // What is known, but not merged yet, may open the way.
    if (!state.isStuck || state.book.head?.phase !== "settled") return null;
  }
}

function begin(state: HalvingState, { candidate, rung }: Step): HalvingRecord {
  const { candidates } = state;
  const known = candidates[candidate];
  if (known === undefined) candidates.push({ rung, standing: "running", score: null, checkpoint: null, past: [] });
  else candidates[candidate] = { ...known, rung, standing: "running", past: [...known.past, known.score ?? 0] };
  return state.book.add({ candidate, rung });
}

function tell(
  state: HalvingState,
  trial: number,
  attempt: number,
  outcome: HalvingOutcome,
): ReturnType<HalvingSearch["tell"]> {
  const changes = noChanges();
  const record = state.book.find(trial, attempt);
  if (record === null) {
    if (outcome.kind === "value" && outcome.checkpoint !== undefined && !isHeld(state, outcome.checkpoint))
      changes.released.push(outcome.checkpoint);
    return { state, changes, verdict: "ignored" };
  }
  if (outcome.kind === "infrastructure-failure") {
    if (state.book.fail(record, state.config.maxAttempts)) return { state, changes, verdict: "retry" };
  } else {
    state.book.settle(record, outcome.kind === "rejected" ? { kind: "rejected" } : recordJudgement(state, outcome));
  }
  advance(state, changes);
  return { state, changes, verdict: changes.merged.includes(trial) ? "merged" : "held" };
}

function recordJudgement(state: HalvingState, outcome: Extract<HalvingOutcome, { kind: "value" }>): Judgement {
  const { kind, score, checkpoint } = outcome;
  if (kind !== "value") throw invalidOutcome("kind", kind, "value, infrastructure-failure or rejected");
  if (!Number.isFinite(score)) throw invalidOutcome("score", score, "a finite number");
  if (checkpoint !== undefined && (!isKey(checkpoint) || isHeld(state, checkpoint)))
    throw invalidOutcome("checkpoint", checkpoint, "a name that no other checkpoint has");
  return { kind, score, checkpoint: checkpoint ?? null };
}

function advance(state: HalvingState, changes: MutableChanges): void {
  const { book, config } = state;
  for (const { record, outcome } of book.due(config.window, () => state.isStuck || book.asked >= config.maxTrials)) {
    state.isStuck = false;
    changes.merged.push(record.id);
    merge(state, record, outcome, changes);
  }
}

function merge(
  state: HalvingState,
  { candidate, rung }: Step,
  outcome: Judgement | { readonly kind: "rejected" | "lost" },
  changes: MutableChanges,
): void {
  const { candidates, config } = state;
  const known = candidates[candidate] as Candidate;
  if (known.checkpoint !== null) changes.released.push(known.checkpoint);
  if (outcome.kind !== "value") {
    candidates[candidate] = { ...known, standing: "out", checkpoint: null };
    return;
  }
  const { score, checkpoint } = outcome;
  state.steps += (config.rungs[rung] as number) - (rung === 0 ? 0 : (config.rungs[rung - 1] as number));
  candidates[candidate] = { ...known, rung, standing: "judged", score, checkpoint };
}

/** The last rung that a candidate reached: those on their way stand on the one below. */
function reached({ rung, standing }: Candidate): number {
  return standing === "judged" ? rung : rung - 1;
}

function ranking({ candidates, config }: HalvingState): RankedRollout[] {
  return candidates
    .map((one, candidate) => ({ ...one, candidate, steps: config.rungs[reached(one)] ?? 0 }))
    .filter(({ score }) => score !== null)
    .sort((one, two) => {
      if (one.steps !== two.steps) return two.steps - one.steps;
      if (one.score !== two.score) return (one.score as number) > (two.score as number) ? -1 : 1;
      return one.candidate - two.candidate;
    });
}

function toTrial(
  { config, seed, candidates }: HalvingState,
  { id, attempt, candidate, rung }: HalvingRecord,
): HalvingTrial {
  return {
    id,
    attempt,
    candidate,
    rung,
    checkpoint: candidates[candidate]?.checkpoint ?? null,
    fromSteps: rung === 0 ? 0 : (config.rungs[rung - 1] as number),
    toSteps: config.rungs[rung] as number,
    candidateSeed: drawSeed(seed, "candidate", candidate),
    seed: drawSeed(seed, "trial", id),
  };
}

function isHeld({ candidates, book }: HalvingState, checkpoint: string): boolean {
  if (candidates.some((candidate) => candidate.checkpoint === checkpoint)) return true;
  return book.open.some(({ outcome }) => outcome?.kind === "value" && outcome.checkpoint === checkpoint);
}

function noChanges(): MutableChanges {
  return { merged: [], released: [] };
}
