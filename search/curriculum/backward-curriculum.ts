import type { SearchBlock } from "../algorithm.js";
import { checkSeed, drawInteger, drawSeed, drawUniform } from "../draws.js";
import { invalidOutcome } from "../errors.js";
import { bookStatus, collect, TrialBook } from "../trial-book.js";
import type {
  BackwardCurriculum,
  BackwardOutcome,
  BackwardState,
  BackwardTrial,
  Played,
  Start,
} from "./backward-state.js";
import { BACKWARD_FORMAT, checkSerialisedBackward } from "./check-data.js";
import { BACKWARD_DEFAULTS, type BackwardOptions, type DemonstrationState, resolveBackward } from "./config.js";

const NAME = "backward-curriculum";

interface MutableChanges {
  merged: number[];
  moved: number[];
  released: string[];
}

/**
 * Go-Explore, phase 2, as a curriculum of start states for reinforcement learning: the policy first plays the end of the demonstration;
 * when it does that as well as the demonstration did, it starts a little earlier, until it plays from the root. It decides where rollouts
 * start and what counts as success; learning is the caller's.
 *
 * Sources: Salimans and Chen, "Learning Montezuma's Revenge from a single demonstration", arXiv 1812.03381; Ecoffet and others,
 * Nature 590, 580-586 (2021).
 */
export const backwardCurriculum: BackwardCurriculum = Object.freeze({
  name: NAME,
  init: (options: BackwardOptions, seed: number): BackwardState => {
    const config = resolveBackward(options);
    return {
      config,
      seed: checkSeed(seed),
      book: new TrialBook(),
      at: config.demonstration.length - 1,
      played: 0,
      succeeded: 0,
    };
  },
  ask: (state: BackwardState, count: number) => {
    const changes = noChanges();
    const records = collect(count, () => state.book.retry() ?? issue(state, changes));
    const trials = records.map((record) => toTrial(state, record));
    advance(state, changes);
    return { state, trials, changes };
  },
  tell,
  finish: (state: BackwardState) => {
    const changes = noChanges();
    state.book.close();
    advance(state, changes);
    return { state, changes };
  },
  outstanding: (state: BackwardState) =>
    state.book.open.filter(({ phase }) => phase === "running").map((record) => toTrial(state, record)),
  status: (state: BackwardState) => {
    const { book, at, played, succeeded } = state;
    return { ...bookStatus(book, blockOf(state)), at, successRate: played === 0 ? null : succeeded / played };
  },
  serialise: ({ config, seed, book, at, played, succeeded }: BackwardState) => {
    return {
      format: BACKWARD_FORMAT,
      algorithm: NAME,
      config: structuredClone(config),
      seed,
      book: book.toData(),
      at,
      played,
      succeeded,
    };
  },
  restore: (serialised: unknown) => {
    const { config, seed, book, at, played, succeeded } = checkSerialisedBackward(serialised, NAME);
    return { config, seed, book: new TrialBook(book), at, played, succeeded };
  },
});

function blockOf({ book, config, at }: BackwardState): SearchBlock | null {
  if (book.closed) return "finished";
  if (at < 0) return "exhausted";
  if (book.asked >= config.maxTrials) return "trials";
  return book.open.length >= config.window ? "window" : null;
}

/** Every other trial, by a draw, from the state that is being learned; the rest uniformly from it and those behind it. */
function issue(state: BackwardState, changes: MutableChanges): BackwardState["book"]["open"][number] | null {
  advance(state, changes);
  if (blockOf(state) !== null) return null;
  const { book, config, at, seed } = state;
  const last = Math.min(config.demonstration.length - 1, at + config.spread - 1);
  const isNewest = drawUniform(seed, "newest", book.asked) < BACKWARD_DEFAULTS.newest;
  return book.add({ start: isNewest ? at : at + drawInteger(seed, last - at + 1, "start", book.asked) });
}

function tell(
  state: BackwardState,
  trial: number,
  attempt: number,
  outcome: BackwardOutcome,
): ReturnType<BackwardCurriculum["tell"]> {
  const changes = noChanges();
  const record = state.book.find(trial, attempt);
  if (record === null) return { state, changes, verdict: "ignored" };
  if (outcome.kind === "infrastructure-failure") {
    if (state.book.fail(record, state.config.maxAttempts)) return { state, changes, verdict: "retry" };
  } else {
    state.book.settle(record, outcome.kind === "rejected" ? { kind: "rejected" } : judge(state, record.start, outcome));
  }
  advance(state, changes);
  return { state, changes, verdict: changes.merged.includes(trial) ? "merged" : "held" };
}

/** As much as the demonstration gained; without `optimiseScore` also in no more steps. */
function judge({ config }: BackwardState, start: number, outcome: Extract<BackwardOutcome, { kind: "value" }>): Played {
  const { kind, gain, steps } = outcome;
  if (kind !== "value") throw invalidOutcome("kind", kind, "value, infrastructure-failure or rejected");
  if (!Number.isFinite(gain)) throw invalidOutcome("gain", gain, "a finite number");
  if (!Number.isInteger(steps) || steps < 0) throw invalidOutcome("steps", steps, "an integer of at least 0");
  const { step, gainLeft } = config.demonstration[start] as DemonstrationState;
  return { kind: "value", isSuccess: gain >= gainLeft && (config.optimiseScore || steps <= config.steps - step) };
}

function advance(state: BackwardState, changes: MutableChanges): void {
  const { book, config } = state;
  for (const { record, outcome } of book.due(config.window, () => state.at < 0 || book.asked >= config.maxTrials)) {
    changes.merged.push(record.id);
    // Only the newest start tells whether it has been learned; starts behind it were learned before.
    if (outcome.kind === "lost" || record.start !== state.at) continue;
    state.played += 1;
    if (outcome.kind === "value" && outcome.isSuccess) state.succeeded += 1;
    if (state.played >= config.judged) move(state, changes);
  }
}

function move(state: BackwardState, changes: MutableChanges): void {
  const { config } = state;
  if (state.succeeded >= config.moveThreshold * state.played) {
    state.at = state.at === 0 ? -1 : Math.max(0, state.at - config.stride);
    changes.moved.push(state.at);
  }
  // Judged anew either way: what a policy could not do 20 rollouts ago it may have learned since.
  state.played = 0;
  state.succeeded = 0;
}

function toTrial(
  { config, seed }: BackwardState,
  record: Start & { readonly id: number; readonly attempt: number },
): BackwardTrial {
  const { id, attempt, start } = record;
  const { checkpoint, step, gainLeft } = config.demonstration[start] as DemonstrationState;
  const maxSteps = Math.ceil(config.patience * (config.steps - step));
  return { id, attempt, start, checkpoint, step, target: gainLeft, maxSteps, seed: drawSeed(seed, "trial", id) };
}

function noChanges(): MutableChanges {
  return { merged: [], moved: [], released: [] };
}
