import { describe, expect, test } from "vitest";
import {
  type ArchiveSearch,
  type ArchiveState,
  chooseAction,
  goExplore,
  type RolloutOutcome,
  type RolloutTrial,
  randomRollouts,
  summarise,
  type Visit,
} from "./index.js";
import { act, allTexts, FIRST, type GameState, read, VERBS } from "./testing/text-game.js";

/** Trials of the game; every state is kept, because nothing costs less here. The text is the cell. */
class Player {
  readonly #kept = new Map<string, GameState>();

  play(trial: RolloutTrial): RolloutOutcome {
    const { checkpoint } = trial.from;
    let state = checkpoint === null ? FIRST : (this.#kept.get(checkpoint) as GameState);
    const visits: Visit[] = [];
    for (let step = 0; step < trial.steps && !state.isDead; step += 1) {
      const action = chooseAction({ seed: trial.seed, step, actions: VERBS });
      state = act(state, action);
      const visit = { action, reward: 0, cell: read(state), terminated: state.isDead };
      const name = `${trial.id}/${step}`;
      if (!state.isDead) this.#kept.set(name, state);
      visits.push(state.isDead ? visit : { ...visit, candidate: { checkpoint: name } });
    }
    return { kind: "value", visits };
  }
}

function search<Options>(search: ArchiveSearch<Options>, state: ArchiveState, total: number): number {
  const player = new Player();
  while (summarise(state).cells < total) {
    const [trial] = search.ask(state, 1).trials;
    if (trial === undefined) break;
    search.tell(state, trial.id, trial.attempt, player.play(trial));
  }
  return summarise(state).cells;
}

describe("text game with hidden state", () => {
  const total = allTexts().size;
  const root = { cell: read(FIRST) };

  test("states that read alike go on differently: how far the wheel is turned is not in the text", () => {
    const before: GameState = { ...FIRST, room: "antechamber", carries: ["candle", "match"], candle: 20 };
    const after = act(act(before, "turn left"), "turn right");
    expect(read(after)).toBe(read(before));
    expect(read(act(after, "turn right"))).not.toBe(read(act(before, "turn right")));
  });

  test.each([1, 3])("seed %i, all texts in at most a tenth of the steps that random rollouts take", (seed) => {
    const state = goExplore.init({ root, stepsPerTrial: 12, window: 1, maxSteps: 200_000 }, seed);
    expect(search(goExplore, state, total)).toBe(total);
    const maxSteps = 10 * summarise(state).steps;
    for (const stepsPerTrial of [12, 100]) {
      const control = randomRollouts.init({ root, stepsPerTrial, window: 1, maxSteps }, seed);
      expect(search(randomRollouts, control, total)).toBeLessThan(total);
    }
  });
});
