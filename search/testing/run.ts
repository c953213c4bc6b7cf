import type { RolloutOutcome, RolloutTrial, Visit } from "../index.js";
import {
  ArchiveReplica,
  type ArchiveSearch,
  type ArchiveState,
  archiveDelta,
  type Changes,
  chooseAction,
  drawUniform,
} from "../index.js";
import { cellOf, isPit, type Maze, type MazeState, MOVES, move } from "./maze.js";

/** What a trial found, and how good its states are. */
export interface World {
  readonly maze: Maze;
  readonly score?: (state: MazeState, length: number) => number;
}

/** Runs trials in a maze and keeps their checkpoints, as an engine with a host would. */
export class MazeRunner {
  /** Checkpoints that exist. */
  readonly checkpoints = new Map<string, MazeState>();
  readonly replica = new ArchiveReplica();
  /** Checkpoints that were made. */
  made = 0;
  readonly #world: World;
  readonly #keepsAll: boolean;

  /** `keepsAll`: a checkpoint at every step, whatever the judge says. */
  constructor(world: World, { keepsAll = false } = {}) {
    this.#world = world;
    this.#keepsAll = keepsAll;
  }

  run(state: ArchiveState, trial: RolloutTrial): RolloutOutcome {
    this.replica.apply(archiveDelta(state, Math.max(0, this.replica.version)));
    const judge = this.replica.at(trial);
    const { maze, score = () => 0 } = this.#world;
    let place = this.#start(trial);
    const visits: Visit[] = [];
    for (let step = 0; step < trial.steps; step += 1) {
      const action = chooseAction({ seed: trial.seed, step, actions: MOVES });
      place = move(maze, place, action);
      const length = trial.from.length + step + 1;
      const standing = { score: score(place, length), length };
      const hasEnded = isPit(maze, place);
      const cell = cellOf(place);
      const visit: Visit = { action, reward: 0, cell, terminated: hasEnded, score: standing.score };
      if (!hasEnded && (this.#keepsAll || judge.judge({ cell, ...standing }) === "keep")) {
        const checkpoint = `${trial.id}.${trial.attempt}.${step}`;
        this.checkpoints.set(checkpoint, place);
        this.made += 1;
        judge.kept(cell, standing);
        visits.push({ ...visit, candidate: { checkpoint } });
      } else {
        visits.push(visit);
      }
      if (hasEnded) break;
    }
    return { kind: "value", visits };
  }

  apply(changes: Changes): void {
    for (const checkpoint of changes.released) this.checkpoints.delete(checkpoint);
  }

  #start(trial: RolloutTrial): MazeState {
    if (trial.from.checkpoint === null) return this.#world.maze.start;
    const place = this.checkpoints.get(trial.from.checkpoint);
    if (place === undefined)
      throw new Error(`Checkpoint ${trial.from.checkpoint} is gone, and trial ${trial.id} starts there`);
    return place;
  }
}

export interface RunOptions {
  readonly world: World;
  /** Trials that run at once; which of them ends first is drawn from `order`. */
  readonly workers: number;
  readonly order?: number;
  /** Called before each ask; return true to stop. */
  readonly until?: (state: ArchiveState) => boolean;
}

/** Asks, runs and tells until the search is done. */
export function runSearch<Options>(
  search: ArchiveSearch<Options>,
  state: ArchiveState,
  { world, workers, order = 0, until = () => false }: RunOptions,
  runner = new MazeRunner(world),
): MazeRunner {
  const running: { readonly trial: RolloutTrial; readonly outcome: RolloutOutcome }[] = [];
  for (let turn = 0; ; turn += 1) {
    if (!until(state)) {
      const asked = search.ask(state, workers - running.length);
      runner.apply(asked.changes);
      for (const trial of asked.trials) running.push({ trial, outcome: runner.run(state, trial) });
    }
    if (running.length === 0) return runner;
    const [ended] = running.splice(Math.floor(drawUniform(order, "order", turn) * running.length), 1);
    if (ended === undefined) throw new Error("Nothing ended");
    runner.apply(search.tell(state, ended.trial.id, ended.trial.attempt, ended.outcome).changes);
  }
}
