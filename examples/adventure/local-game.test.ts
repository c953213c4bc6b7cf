/** The environment against the real program, in a local process. */

import { afterAll, describe, expect, test } from "vitest";

import { actionsFor } from "./actions.js";
import { adventure } from "./adventure.js";
import { LocalMachine, missingForLocalGame, removeShim } from "./local-game.js";
import type { AdventureObservation } from "./observation.js";

const missing = missingForLocalGame();

afterAll(removeShim);

test("local game, this machine, can run it", () => {
  expect(missing).toBeUndefined();
});

interface Game {
  readonly machine: LocalMachine;
  readonly seed: number;
  observation: AdventureObservation;
}

async function start(seed: number): Promise<Game> {
  const machine = new LocalMachine();
  await adventure.warmUp?.({ ...machine.context, seed });
  return { machine, seed, observation: await adventure.reset({ ...machine.context, seed }) };
}

async function act(game: Game, action: string): Promise<AdventureObservation> {
  const { observation } = await adventure.step(game.machine.context, action, game.observation);
  game.observation = observation;
  return observation;
}

async function play(seed: number, actions: readonly string[]): Promise<Game> {
  const game = await start(seed);
  for (const action of actions) await act(game, action);
  return game;
}

/** The same game in a machine of its own: what is asked there does not change the first. */
async function inFork<T>(game: Game, body: (fork: Game) => Promise<T>): Promise<T> {
  const machine = await game.machine.fork();
  try {
    return await body({ ...game, machine });
  } finally {
    machine.close();
  }
}

/** Numbers below `limit`, the same for equal seeds. */
function dice(seed: number): (limit: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** How the game's list calls what observations call otherwise. */
const LISTED: Readonly<Record<string, string>> = {
  "Set of keys": "keys",
  "Brass lantern": "lamp",
  "Wicker cage": "cage",
  "Black rod": "rod",
  "Little bird in cage": "caged bird",
  "Velvet pillow": "pillow",
  "Giant clam >grunt!<": "clam",
  "Giant oyster >groan!<": "oyster",
  '"Spelunker Today"': "magazine",
  "Tasty food": "food",
  "Small bottle": "bottle",
  "Water in the bottle": "bottle of water",
  "Oil in the bottle": "bottle of oil",
  "Dwarf's axe": "axe",
  Batteries: "batteries",
  "Large gold nugget": "gold",
  "Several diamonds": "diamonds",
  "Bars of silver": "silver",
  "Precious jewelry": "jewelry",
  "Rare coins": "coins",
  "Treasure chest": "chest",
  "Golden eggs": "eggs",
  "Jeweled trident": "trident",
  "Ming vase": "vase",
  "Egg-sized emerald": "emerald",
  "Platinum pyramid": "pyramid",
  "Glistening pearl": "pearl",
  "Persian rug": "rug",
  "Rare spices": "spices",
  "Golden chain": "chain",
};

function listed(text: string): readonly string[] {
  const names = text.split("\n").flatMap((line) => LISTED[line] ?? []);
  if (text.includes("followed by a very large, tame bear")) names.push("bear");
  const full = names.some((name) => name.startsWith("bottle of"));
  return names.filter((name) => name !== "bottle" || !full).sort();
}

const KEYS_AND_LAMP = ["building", "take lamp", "take keys", "out"];
const INTO_THE_CAVE = [...KEYS_AND_LAMP, "south", "south", "south", "unlock grate", "in", "west"];
const TO_THE_BIRD = [...INTO_THE_CAVE, "take cage", "west", "on", "west", "west"];

describe.skipIf(missing !== undefined)("the real game", () => {
  test("two games, equal seeds and commands, equal observations", async () => {
    const [left, right] = await Promise.all([play(3, TO_THE_BIRD), play(3, TO_THE_BIRD)]);
    expect(left.observation).toEqual(right.observation);
    left.machine.close();
    right.machine.close();
  });

  test("first steps, known way, the observations that a player would write down", async () => {
    const game = await play(1, TO_THE_BIRD);
    expect(game.observation).toMatchObject({
      room: "Bird Chamber",
      light: "lit",
      lamp: true,
      carrying: ["cage", "keys", "lamp"],
      achieved: ["grate open"],
      words: { xyzzy: ["Debris Room"] },
      turn: TO_THE_BIRD.length,
    });
    expect(game.observation.here).toContain("bird");
    expect(await act(game, "take bird")).toMatchObject({ carrying: ["cage", "caged bird", "keys", "lamp"] });
    game.machine.close();
  });

  test("the bird, the snake and the bridge, known way, each is an achievement and the hands are as the game lists them", async () => {
    const hall = ["take bird", "east", "east", "take rod", "west", "west", "west", "down", "down"];
    const game = await play(4, [...TO_THE_BIRD, ...hall]);
    expect(game.observation).toMatchObject({ room: "Hall of Mt King", here: ["snake"] });
    await act(game, "drop bird");
    for (const action of ["east", "west", "wave rod", "over", "take diamonds"]) await act(game, action);
    expect(game.observation).toMatchObject({
      room: "West bank of fissure",
      achieved: ["crystal bridge", "grate open", "snake gone"],
      carrying: ["cage", "diamonds", "keys", "lamp", "rod"],
    });
    await compareWithGame(game);
    game.machine.close();
  });

  test("known room, visited again, has the name of the first visit", async () => {
    const game = await play(1, ["building", "out"]);
    expect(game.observation.text).toBe("You're at end of road again.");
    expect(game.observation.room).toBe("End of road");
    game.machine.close();
  });

  test("cave without a light, darkness, and the room again when the lamp burns", async () => {
    const game = await play(1, [...INTO_THE_CAVE, "west"]);
    expect(game.observation).toMatchObject({ room: "Darkness", light: "dark" });
    expect(actionsFor(game.observation)).toEqual(["back", "on"]);
    expect(await act(game, "on")).toMatchObject({ room: "Debris Room", light: "lit" });
    expect(await act(game, "off")).toMatchObject({ room: "Debris Room", light: "dark" });
    game.machine.close();
  });

  test("waiting at the grate without keys, the hint is declined and the game goes on", async () => {
    const game = await play(1, ["south", "south", "south"]);
    for (let turn = 0; turn < 12; turn += 1) await act(game, "take keys");
    expect(await act(game, "north")).toMatchObject({ room: "Slit in streambed", over: false });
    await expect(inFork(game, ({ machine, observation }) => scoreOf(machine, observation))).resolves.toBe(32);
    game.machine.close();
  });

  test.each(["quit", "suspend", "score", "say hello", "feefie", "kill", "read", "info", "help"])(
    "command that leads elsewhere, %j, the game goes on where it was",
    async (command) => {
      const game = await play(1, ["building", command]);
      expect(game.observation).toMatchObject({ room: "Inside building", over: false });
      expect(await act(game, "out")).toMatchObject({ room: "End of road" });
      game.machine.close();
    },
  );

  test("stumbling in the dark, death, terminated with the score of the game's last words", async () => {
    const game = await play(1, [...INTO_THE_CAVE, "west"]);
    for (let turn = 0; turn < 100 && !game.observation.over; turn += 1) await act(game, "west");
    expect(game.observation).toMatchObject({ over: true, deaths: 1 });
    expect(await scoreOf(game.machine, game.observation)).toBeGreaterThan(0);
    game.machine.close();
  });

  test.each([1, 2])("random play, seed %i, what is tracked is what the game says when asked", async (seed) => {
    const roll = dice(seed);
    let game = await start(seed);
    for (let step = 1; step <= 750; step += 1) {
      const actions = adventure.actions(game.observation);
      await act(game, actions[roll(actions.length)] as string);
      if (game.observation.over) {
        game.machine.close();
        game = await start(seed * 1_000 + step);
      } else if (step % 25 === 0) await compareWithGame(game);
    }
    game.machine.close();
  });

  test("policy that types anything, 500 commands, never stuck", async () => {
    const roll = dice(99);
    const verbs = [
      "take",
      "drop",
      "throw",
      "kill",
      "wave",
      "say",
      "open",
      "fill",
      "feed",
      "eat",
      "xyzzy",
      "y",
      "no",
      "",
    ];
    const nouns = [
      "lamp",
      "keys",
      "food",
      "bottle",
      "water",
      "axe",
      "bird",
      "dwarf",
      "all",
      "no",
      "?",
      "",
      "12345678901",
    ];
    let game = await start(5);
    for (let step = 0; step < 500; step += 1) {
      const actions = adventure.actions(game.observation);
      const typed = `${verbs[roll(verbs.length)]} ${nouns[roll(nouns.length)]}`.trim();
      await act(game, typed === "" || roll(2) === 0 ? (actions[roll(actions.length)] as string) : typed);
      if (!game.observation.over) continue;
      game.machine.close();
      game = await start(100 + step);
    }
    game.machine.close();
  });
});

async function scoreOf(machine: LocalMachine, observation: AdventureObservation): Promise<number> {
  return (await adventure.score?.(machine.context, observation)) ?? Number.NaN;
}

async function compareWithGame(game: Game): Promise<void> {
  const { carrying, room, light } = game.observation;
  const inventory = await inFork(game, (fork) => act(fork, "inventory"));
  expect(listed(inventory.text)).toEqual(carrying);
  await inFork(game, async ({ machine, observation }) => {
    expect(await scoreOf(machine, observation)).toBeGreaterThanOrEqual(0);
  });
  if (light === "dark") return;
  const look = await inFork(game, (fork) => act(fork, "look"));
  if (!look.over) expect(look.room).toBe(room);
}
