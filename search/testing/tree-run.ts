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
import { ACCIDENT, type Drive, drive } from "./drive.js";
import type { Schedule } from "./schedule.js";

/** What a trial leads to. */
export type TreeWorld = (trial: TreeTrial) => TreeOutcome;

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

/** Runs a search to its end in the order and with the accidents of the schedule. */
export function runTreeSchedule<Options extends TreeOptions, Params>(
  search: TreeSearch<Options, Params>,
  initial: TreeState<Params>,
  world: TreeWorld,
  schedule: Schedule,
  watch: (state: TreeState<Params>) => void = () => {},
): Drive<TreeState<Params>, TreeTrial> {
  return drive(search, { initial, outcomeOf: world, accident: ACCIDENT, namesOf: checkpointOf, watch }, schedule);
}

/** The checkpoint that an outcome brings, if any. */
export function checkpointOf(outcome: { readonly kind: string; readonly checkpoint?: string }): string[] {
  return outcome.checkpoint === undefined ? [] : [outcome.checkpoint];
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
      ...(pick("noted", 4) === 0 ? { note: `note ${id}` } : {}),
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
