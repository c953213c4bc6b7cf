import {
  type ArchiveSearch,
  type ArchiveState,
  type CellKnowledge,
  type Changes,
  drawInteger,
  drawUniform,
  heldCheckpoints,
  type RolloutOutcome,
  type RolloutTrial,
  type Visit,
} from "../index.js";

/** Outcomes as pure functions of the trial, with every kind of outcome and visit among them. */
export interface Script {
  readonly seed: number;
  readonly cells: number;
  /** Multiplies rewards and scores. */
  readonly scale?: number;
  /** Whether cells come with what is known of them. */
  readonly hasKnowledge?: boolean;
  /** The cell of a state that is called so; by default its name. */
  readonly cellOf?: (name: string) => string;
}

/** How trials are run and told: anything here must leave the tree as it is. */
export interface Schedule {
  readonly seed: number;
  readonly workers: number;
  /** Chance that a running trial fails in between, that an old outcome is told again, that the state goes through `copy`. */
  readonly failure: number;
  readonly repeat: number;
  readonly restart: number;
  readonly copy?: (serialised: unknown) => unknown;
}

export const IN_ORDER: Schedule = { seed: 0, workers: 1, failure: 0, repeat: 0, restart: 0 };

/** Workers, failures, repeats and restarts by a number; 0 is `IN_ORDER`. */
export function scheduleOf(seed: number): Schedule {
  if (seed === 0) return IN_ORDER;
  const pick = (what: string, chance: number): number => (drawInteger(seed, 2, what) === 0 ? 0 : chance);
  const workers = 1 + drawInteger(seed, 10, "workers");
  return { seed, workers, failure: pick("fails", 0.3), repeat: pick("repeats", 0.5), restart: pick("restarts", 0.3) };
}

export interface ScheduleResult {
  readonly state: ArchiveState;
  /** Checkpoints that were made and not released. */
  readonly left: ReadonlySet<string>;
}

/** `steps` long at most; every seventh trial or so is lost or rejected. */
export function scriptedOutcome(script: Script, trial: RolloutTrial): RolloutOutcome {
  const kind = drawInteger(script.seed, 14, "kind", trial.id);
  if (kind === 0) return { kind: "infrastructure-failure", reason: "scripted" };
  if (kind === 1) return { kind: "rejected", reason: "scripted" };
  const visits: Visit[] = [];
  const count = drawInteger(script.seed, trial.steps + 1, "count", trial.id);
  for (let step = 0; step < count; step += 1) {
    const pick = (what: string, below: number): number => drawInteger(script.seed, below, what, trial.id, step);
    const terminated = pick("end", 12) === 0;
    const name = `cell ${pick("cell", script.cells)}`;
    const visit: Visit = {
      action: `act ${pick("action", 5)}`,
      cell: script.cellOf?.(name) ?? name,
      ...(script.cellOf === undefined ? {} : { sample: name }),
      ...(script.hasKnowledge && pick("told", 3) > 0 ? { knowledge: scriptedKnowledge(script, name) } : {}),
      reward: (pick("reward", 5) - 2) * (script.scale ?? 1),
      terminated,
      ...(pick("scored", 2) === 0 ? { score: pick("score", 4) * (script.scale ?? 1) } : {}),
      ...(pick("kept", 3) > 0 ? { candidate: { checkpoint: `${trial.id}/${step}` } } : {}),
      ...(pick("seen", 4) === 0
        ? { landmarks: { room: `room ${pick("room", 6)}`, thing: `${pick("thing", 3)}` } }
        : {}),
    };
    visits.push(visit);
    if (terminated) break;
  }
  return { kind: "value", visits };
}

function scriptedKnowledge({ seed, cells }: Script, cell: string): CellKnowledge {
  const pick = (what: string, below: number): number => drawInteger(seed, below, "known", what, cell);
  const beside = (kind: string): string[] =>
    Array.from({ length: pick(`${kind}s`, 3) }, (_, index) => `cell ${pick(`${kind} ${index}`, cells)}`);
  return {
    neighbours: { horizontal: beside("horizontal"), vertical: beside("vertical") },
    ...(pick("placed", 3) === 0 ? {} : { place: `place ${pick("place", 3)}` }),
    ...(pick("levelled", 3) === 0 ? {} : { level: pick("level", 3) }),
  };
}

/** Runs a search to its end by the script, in the order and with the accidents of the schedule. */
export function runSchedule<Options>(
  search: ArchiveSearch<Options>,
  initial: ArchiveState,
  script: Script,
  schedule: Schedule,
): ScheduleResult {
  let state = initial;
  const left = new Set<string>();
  const told: { readonly trial: RolloutTrial; readonly outcome: RolloutOutcome }[] = [];
  let running: RolloutTrial[] = [];
  const apply = ({ released }: Changes): void => {
    for (const checkpoint of released) left.delete(checkpoint);
  };
  for (let turn = 0; ; turn += 1) {
    const chance = (what: string): number => drawUniform(schedule.seed, what, turn);
    const asked = search.ask(state, schedule.workers - running.length);
    apply(asked.changes);
    running.push(...asked.trials);
    if (running.length === 0) return { state, left };
    if (chance("restart") < schedule.restart) {
      state = search.restore((schedule.copy ?? structuredClone)(search.serialise(state)));
      // What the dead process had running is run again.
      running = [...search.outstanding(state)];
    }
    const [trial] = running.splice(Math.floor(chance("next") * running.length), 1);
    if (trial === undefined) throw new Error("Nothing is running");
    const isAccident = chance("failure") < schedule.failure && trial.attempt + 1 < state.config.maxAttempts;
    const outcome: RolloutOutcome = isAccident
      ? { kind: "infrastructure-failure", reason: "accident" }
      : scriptedOutcome(script, trial);
    keep(outcome, left);
    apply(search.tell(state, trial.id, trial.attempt, outcome).changes);
    told.push({ trial, outcome });
    const again = told[Math.floor(chance("again") * told.length)];
    if (again !== undefined && chance("repeat") < schedule.repeat) {
      const late = chance("late") < 0.5 ? again.outcome : staleOutcome(turn, left);
      apply(search.tell(state, again.trial.id, again.trial.attempt, late).changes);
    }
  }
}

/** The opposite of what was released: nothing that is held may be missing, and nothing else may be left. */
export function leftAndHeld({ state, left }: ScheduleResult): [string[], string[]] {
  return [[...left].sort(), heldCheckpoints(state).sort()];
}

function keep(outcome: RolloutOutcome, left: Set<string>): void {
  if (outcome.kind !== "value") return;
  for (const { candidate } of outcome.visits) if (candidate !== undefined) left.add(candidate.checkpoint);
}

function staleOutcome(turn: number, left: Set<string>): RolloutOutcome {
  const visit = { action: "late", cell: "late", reward: 99, terminated: false };
  const outcome: RolloutOutcome = { kind: "value", visits: [{ ...visit, candidate: { checkpoint: `late ${turn}` } }] };
  keep(outcome, left);
  return outcome;
}
