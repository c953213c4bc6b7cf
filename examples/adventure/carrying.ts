/** What is in the player's hands, told from the command and its reply: the game's own list would cost a turn. */

import { isPortable, isTreasure, wordFor } from "./things.js";

export interface Hands {
  readonly room: string;
  readonly here: readonly string[];
  readonly carrying: readonly string[];
}

const TAKEN = /(?:^|\n)OK(?:\n|$)/;
const HELD_ALREADY = /You are already carrying it/;

/** Replies to drop and throw after which the thing is no longer held. */
const RELEASED = new RegExp(
  [
    "(?:^|\\n)OK(?:\\n|$)",
    "You aren't carrying it",
    "drives the snake away",
    "burnt to a cinder",
    "fresh batteries here",
    "resting, delicately",
    "delicate crash",
    "lumbers toward the troll",
    "catches your treasure",
    "You killed a little dwarf",
    "but he dodges",
    "bounces harmlessly",
    "deftly catches the axe",
    "The axe misses",
    "wolfs down your food",
  ].join("|"),
);

/** Sentences that take something out of the hands whatever was said. */
const LOST: readonly (readonly [word: string, by: RegExp])[] = [
  ["bird", /burnt to a cinder|devoured your bird|The little bird is now dead/],
  ["food", /wolfs down your food|it was delicious/],
  ["batteries", /taking the liberty of replacing the batteries/],
  ["eggs", /nest of golden eggs has vanished/],
];

/** What the bottle holds after a sentence. */
const BOTTLE: readonly (readonly [name: string, by: RegExp])[] = [
  ["bottle of water", /bottle is now full of water/],
  ["bottle of oil", /bottle is now full of oil/],
  [
    "bottle",
    /bottle of water is now empty|bottle is empty and the ground is wet|furious growth|grows explosively|over-watered|shakes the oil off|hinges are quite|freed up the hinges/,
  ],
];

/** What is carried, sorted, after `command` was answered with `text` in `room`. */
export function carriedAfter(before: Hands, command: string, text: string, room: string): readonly string[] {
  if (/The cave is now closed/.test(text)) return [];
  const held = new Map(before.carrying.map((name) => [wordFor(name), name]));
  const [verb = "", word = ""] = command.split(" ");
  if (verb === "take" && (TAKEN.test(text) || HELD_ALREADY.test(text))) take(held, before, word);
  if ((verb === "drop" || verb === "throw") && RELEASED.test(text)) {
    held.delete(word);
    if (word === "cage") held.delete("bird");
  }
  for (const [name, by] of BOTTLE) if (held.has("bottle") && by.test(text)) held.set("bottle", name);
  for (const [lost, by] of LOST) if (by.test(text)) held.delete(lost);
  if (/snatches your treasure/.test(text)) {
    for (const [key, name] of [...held]) if (isTreasure(name)) held.delete(key);
  }
  // The game drops it without a word when this magic carries the player off.
  if (verb === "plover" && room !== before.room) held.delete("emerald");
  return [...held.values()].sort();
}

function take(held: Map<string, string>, before: Hands, word: string): void {
  const name = before.here.find((thing) => wordFor(thing) === word && isPortable(thing)) ?? word;
  if (!isPortable(name)) return;
  const bird = word === "bird" || (word === "cage" && before.here.includes("caged bird"));
  held.set(word, name);
  if (!bird) return;
  held.set("bird", "caged bird");
  held.set("cage", "cage");
}
