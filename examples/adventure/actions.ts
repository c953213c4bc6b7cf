/** What a player would try, in a fixed order: ways to go, things to take, and what the things at hand are good for. */

import type { AdventureObservation } from "./observation.js";
import { DARKNESS, isOutdoors, waysFrom } from "./rooms.js";
import { isPortable, isTreasure, wordFor } from "./things.js";

/** What is at hand, in the words that the rules below ask about. */
interface Situation {
  readonly observation: AdventureObservation;
  readonly sees: (name: string) => boolean;
  readonly has: (name: string) => boolean;
}

interface Rule {
  readonly command: string;
  readonly when: (situation: Situation) => boolean;
}

/** One entry an idea that a player has at the sight of something. The first ones are tried in any place. */
const IDEAS: readonly Rule[] = [
  { command: "on", when: ({ observation, has }) => !observation.lamp && has("lamp") && !isOutdoors(observation.room) },
  { command: "off", when: ({ observation, has }) => observation.lamp && has("lamp") && isOutdoors(observation.room) },
  { command: "unlock grate", when: ({ sees, has }) => sees("locked grate") && has("keys") },
  { command: "drop rod", when: ({ sees, has }) => sees("bird") && has("rod") },
  { command: "drop bird", when: ({ sees, has }) => (sees("snake") || sees("dragon")) && has("caged bird") },
  { command: "wave rod", when: ({ sees, has }) => sees("fissure") && has("rod") },
  { command: "throw axe", when: ({ sees, has }) => sees("dwarf") && has("axe") },
  { command: "kill dragon", when: ({ sees }) => sees("dragon") },
  { command: "yes", when: ({ observation }) => observation.text.endsWith("Your bare hands?") },
  { command: "fill bottle", when: ({ sees, has }) => has("bottle") && (sees("water") || sees("oil")) },
  { command: "pour water", when: ({ sees, has }) => sees("thirsty plant") && has("bottle of water") },
  { command: "pour oil", when: ({ sees, has }) => sees("rusty door") && has("bottle of oil") },
  { command: "climb", when: ({ sees }) => sees("beanstalk") || sees("thirsty plant") },
  { command: "open clam", when: ({ sees, has }) => sees("clam") && has("trident") },
  { command: "drop clam", when: ({ has }) => has("clam") },
  { command: "feed bear", when: ({ sees, has }) => sees("fierce bear") && has("food") },
  { command: "unlock chain", when: ({ sees, has }) => sees("locked chain") && has("keys") },
  { command: "drop bear", when: ({ sees, has }) => sees("troll") && has("bear") },
  { command: "drop coins", when: ({ sees, has }) => sees("machine") && has("coins") },
  { command: "drop vase", when: ({ sees, has }) => sees("pillow") && has("vase") },
  { command: "blast", when: ({ observation }) => observation.achieved.includes("cave closed") },
];

/** Treasures are for the building, and one of them for the troll. */
function uses(situation: Situation): readonly string[] {
  const { observation, sees } = situation;
  const treasures = observation.carrying.filter(isTreasure).map(wordFor);
  if (sees("troll")) return treasures.map((word) => `throw ${word}`);
  if (observation.room === "Inside building") return treasures.map((word) => `drop ${word}`);
  return [];
}

/** What to leave behind when the hands are full, or too full for a tight passage. */
function burdens(observation: AdventureObservation): readonly string[] {
  if (!/You can't carry anything more|won't fit through the tunnel/.test(observation.text)) return [];
  return observation.carrying.map((name) => `drop ${wordFor(name)}`);
}

function magicFor({ words, room }: AdventureObservation): readonly string[] {
  return Object.keys(words).filter((word) => words[word]?.includes(room) === true);
}

/** In the dark a step may be the last: a player with a lamp lights it, or gropes back. */
function waysOf(observation: AdventureObservation): readonly string[] {
  if (observation.light === "lit") return waysFrom(observation.room);
  return observation.carrying.includes("lamp") ? ["back"] : ["back", ...waysFrom(DARKNESS)];
}

export function actionsFor(observation: AdventureObservation): readonly string[] {
  const situation: Situation = {
    observation,
    sees: (name) => observation.here.includes(name),
    has: (name) => observation.carrying.includes(name),
  };
  const takes = observation.here.filter((name) => isPortable(name)).map((name) => `take ${wordFor(name)}`);
  const actions = [
    ...waysOf(observation),
    ...magicFor(observation),
    ...takes,
    ...IDEAS.filter(({ when }) => when(situation)).map(({ command }) => command),
    ...uses(situation),
    ...burdens(observation),
  ];
  return [...new Set(actions)];
}
