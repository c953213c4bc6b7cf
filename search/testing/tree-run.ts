import {
  drawInteger,
  drawUniform,
  type StepResult,
  type TreeOptions,
  type TreeOutcome,
  type TreeSearch,
  type TreeState,
  type TreeTrial,
} from "../index.js";
import type { Schedule } from "./schedule.js";

/** What a trial leads to. */
export type TreeWorld = (trial: TreeTrial) => TreeOutcome;

interface TreeRun<Params> {
  readonly state: TreeState<Params>;
  /** Checkpoints that were made and not released. */
  readonly left: ReadonlySet<string>;
  /** Trials in the order in which they were first asked. */
  readonly asked: readonly TreeTrial[];
}

/** One worker, each trial told before the next is asked, until the search gives none. */
export function runTree<Options extends TreeOptions, Params>(
  search: TreeSearch<Options, Params>,
  state: TreeState<Params>,
  world: TreeWorld,
): TreeTrial[] {
  const asked: TreeTrial[] = [];
  for (;;) {
    const [trial] = search.ask(state, 1).trials;
    if (trial === undefined) return asked;
    asked.push(trial);
    search.tell(state, trial.id, trial.attempt, world(trial));
  }
}

/** Runs a search to its end in the order and with the accidents of the schedule; `workers` trials at once. */
export function runTreeSchedule<Options extends TreeOptions, Params>(
  search: TreeSearch<Options, Params>,
  initial: TreeState<Params>,
  world: TreeWorld,
  schedule: Schedule,
): TreeRun<Params> {
  let state = initial;
  const left = new Set<string>();
  const asked: TreeTrial[] = [];
  const told: { readonly trial: TreeTrial; readonly outcome: TreeOutcome }[] = [];
  let running: TreeTrial[] = [];
  const tell = (trial: TreeTrial, outcome: TreeOutcome): void => {
    if (outcome.kind === "value" && outcome.checkpoint !== undefined) left.add(outcome.checkpoint);
    for (const name of search.tell(state, trial.id, trial.attempt, outcome).changes.released) left.delete(name);
  };
  for (let turn = 0; ; turn += 1) {
    const chance = (what: string): number => drawUniform(schedule.seed, what, turn);
    const { trials, changes } = search.ask(state, schedule.workers - running.length);
    for (const name of changes.released) left.delete(name);
    asked.push(...trials.filter(({ attempt }) => attempt === 0));
    running.push(...trials);
    if (running.length === 0) return { state, left, asked };
    if (chance("restart") < schedule.restart) {
      state = search.restore((schedule.copy ?? structuredClone)(search.serialise(state)));
      running = [...search.outstanding(state)];
    }
    const [trial] = running.splice(Math.floor(chance("next") * running.length), 1);
    if (trial === undefined) throw new Error("Nothing is running");
    const isAccident = chance("failure") < schedule.failure && trial.attempt + 1 < state.config.maxAttempts;
    const outcome: TreeOutcome = isAccident ? { kind: "infrastructure-failure", reason: "accident" } : world(trial);
    tell(trial, outcome);
    told.push({ trial, outcome });
    const again = told[Math.floor(chance("again") * told.length)];
    if (again !== undefined && chance("repeat") < schedule.repeat) tell(again.trial, again.outcome);
  }
}

export interface TreeScript {
  readonly seed: number;
  /** Different states that an action can lead to, where the search is stochastic or has transpositions. */
  readonly keys: number;
  /** Multiplies rewards and values. */
  readonly scale: number;
  readonly players: 1 | 2;
  readonly hasPriors: boolean;
}

/** Every kind of outcome, as a pure function of the trial. Equal keys mean equal states. */
export function scriptedWorld(script: TreeScript): TreeWorld {
  return ({ id, action, from }) => {
    const pick = (what: string, below: number): number => drawInteger(script.seed, below, what, id);
    const kind = pick("kind", 16);
    if (kind === 0) return { kind: "infrastructure-failure", reason: "scripted" };
    if (kind === 1) return { kind: "rejected", reason: "scripted" };
    const key = `state ${pick("key", script.keys)} of ${from.depth + 1}`;
    const step: StepResult = {
      kind: "value",
      reward: (pick("reward", 5) - 2) * script.scale,
      ...stateOf(script, key),
      key,
      ...(pick("kept", 3) > 0 ? { checkpoint: `${id}` } : {}),
      ...(action === null ? { action: `idea ${pick("idea", 4)}` } : {}),
    };
    return step;
  };
}

function stateOf({ seed, scale, players, hasPriors }: TreeScript, key: string): Omit<StepResult, "kind" | "reward"> {
  const pick = (what: string, below: number): number => drawInteger(seed, below, what, key);
  if (pick("end", 6) === 0) return { terminated: true };
  const count = pick("actions", 4);
  return {
    terminated: false,
    value: (drawUniform(seed, "value", key) - 0.5) * 4 * scale,
    actions: Array.from({ length: count }, (_, index) => `act ${index}`),
    ...(hasPriors ? { priors: Array.from({ length: count }, (_, index) => pick(`prior ${index}`, 4)) } : {}),
    ...(players === 2 ? { player: pick("player", 2) === 1 ? 1 : 0 } : {}),
  };
}
