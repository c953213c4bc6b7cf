import { drawUniform } from "../index.js";
import type { Schedule } from "./schedule.js";

interface Numbered {
  readonly id: number;
  readonly attempt: number;
}

/** What a trial that fails by chance comes to; the next attempt goes well. */
export const ACCIDENT = { kind: "infrastructure-failure", reason: "accident" } as const;

interface Releases {
  readonly changes: { readonly released: readonly string[] };
}

/** What all searches with a trial book have in common. */
export interface Drivable<State, Trial, Outcome> {
  ask(state: State, count: number): Releases & { readonly trials: readonly Trial[] };
  tell(state: State, trial: number, attempt: number, outcome: Outcome): Releases;
  outstanding(state: State): readonly Trial[];
  serialise(state: State): unknown;
  restore(serialised: unknown): State;
}

interface Driven<State, Trial, Outcome> {
  readonly initial: State;
  readonly outcomeOf: (trial: Trial) => Outcome;
  readonly accident: Outcome;
  /** What an outcome brings with it that has to be released some day. */
  readonly namesOf: (outcome: Outcome) => readonly string[];
  /** Called after every ask and every tell. */
  readonly watch?: (state: State) => void;
}

export interface Drive<State, Trial> {
  readonly state: State;
  /** Names that were made and not released. */
  readonly left: ReadonlySet<string>;
  /** Trials in the order in which they were first asked. */
  readonly asked: readonly Trial[];
}

/** Runs a search to its end in the order and with the accidents of the schedule; `workers` trials at once. */
export function drive<
  State extends { readonly config: { readonly maxAttempts: number } },
  Trial extends Numbered,
  Outcome,
>(
  search: Drivable<State, Trial, Outcome>,
  { initial, outcomeOf, accident, namesOf, watch }: Driven<State, Trial, Outcome>,
  schedule: Schedule,
): Drive<State, Trial> {
  let state = initial;
  const left = new Set<string>();
  const asked: Trial[] = [];
  const told: [Trial, Outcome][] = [];
  let running: Trial[] = [];
  const release = ({ changes }: Releases): void => {
    for (const name of changes.released) left.delete(name);
  };
  const tell = (trial: Trial, outcome: Outcome): void => {
    for (const name of namesOf(outcome)) left.add(name);
    release(search.tell(state, trial.id, trial.attempt, outcome));
    watch?.(state);
  };
  for (let turn = 0; ; turn += 1) {
    const chance = (what: string): number => drawUniform(schedule.seed, what, turn);
    const answer = search.ask(state, schedule.workers - running.length);
    release(answer);
    watch?.(state);
    asked.push(...answer.trials.filter(({ attempt }) => attempt === 0));
    running.push(...answer.trials);
    if (running.length === 0) return { state, left, asked };
    if (chance("restart") < schedule.restart) {
      state = search.restore((schedule.copy ?? structuredClone)(search.serialise(state)));
      running = [...search.outstanding(state)];
    }
    const [trial] = running.splice(Math.floor(chance("next") * running.length), 1);
    if (trial === undefined) throw new Error("Nothing is running");
    const isAccident = chance("failure") < schedule.failure && trial.attempt + 1 < state.config.maxAttempts;
    const outcome = isAccident ? accident : outcomeOf(trial);
    tell(trial, outcome);
    told.push([trial, outcome]);
    const again = told[Math.floor(chance("again") * told.length)];
    if (again !== undefined && chance("repeat") < schedule.repeat) tell(...again);
  }
}
