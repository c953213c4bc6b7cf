/** What a player knows after a reply: everything that the environment remembers, from the text and the step before. */

import { carriedAfter } from "./carrying.js";
import { DARKNESS, roomOf } from "./rooms.js";
import { paragraphs } from "./text.js";
import { fixturesOf, isTreasure, thingsIn, wordFor } from "./things.js";

export interface AdventureObservation {
  /** The game's reply, without the terminal's echo. */
  readonly text: string;
  /** Name of the place, the same for its long and its short description; "Darkness" where nothing can be seen. */
  readonly room: string;
  readonly light: "lit" | "dark";
  /** Things in sight that are not carried, portable or not. */
  readonly here: readonly string[];
  /** Sorted. A full bottle says of what: "bottle of water". */
  readonly carrying: readonly string[];
  /** Whether the lamp burns, wherever it is. */
  readonly lamp: boolean;
  /** What was brought about, sorted: "snake gone", "gold stored". */
  readonly achieved: readonly string[];
  /** Magic words that were read or heard, each with the rooms where it is worth saying. */
  readonly words: Readonly<Record<string, readonly string[]>>;
  /** Commands since the start. */
  readonly turn: number;
  readonly deaths: number;
  /** The program has ended. */
  readonly over: boolean;
}

/** Achievements, the sentences that bring them about, and those that undo them. */
const ACHIEVEMENTS: readonly { readonly name: string; readonly by: RegExp; readonly undone?: RegExp }[] = [
  { name: "grate open", by: /The grate is (?:open|now unlocked)/, undone: /The grate is (?:now )?locked/ },
  { name: "crystal bridge", by: /A crystal bridge now spans/, undone: /crystal bridge has vanished/ },
  { name: "snake gone", by: /drives the snake away/ },
  { name: "dwarf killed", by: /You killed a little dwarf/ },
  {
    name: "plant tall",
    by: /spurts into furious growth|12-foot-tall beanstalk/,
    undone: /over-watered the plant|grows explosively/,
  },
  { name: "plant huge", by: /grows explosively|(?:gigantic|huge) beanstalk/, undone: /over-watered the plant/ },
  { name: "door oiled", by: /freed up the hinges|leads through a massive, rusty, iron door/ },
  { name: "dragon dead", by: /just vanquished a dragon|green dead dragon/ },
  { name: "troll paid", by: /catches your treasure and scurries away/, undone: /steps out from beneath the bridge/ },
  { name: "troll gone", by: /lets out a startled shriek/ },
  { name: "bear tame", by: /bear eagerly wolfs down your food/ },
  { name: "chain unlocked", by: /The chain is now unlocked/, undone: /The chain is now locked/ },
  { name: "clam opened", by: /glistening pearl falls out of the clam/ },
  { name: "fresh batteries", by: /fresh batteries here|replacing the batteries/ },
  { name: "cave closing", by: /Cave closing soon/ },
  { name: "cave closed", by: /The cave is now closed/ },
];

const MAGIC_WORDS: readonly { readonly word: string; readonly by: RegExp }[] = [
  { word: "xyzzy", by: /Magic word XYZZY/ },
  { word: "plugh", by: /A hollow voice says "Plugh"/ },
  { word: "plover", by: /You're in Plover Room/ },
];

const PITCH_DARK = /It is now pitch dark/;
const DWARVES = /threatening little dwar(?:f|ves)/;
const DEATH = /gotten yourself killed|you've done it again!|Now you've really done it!|looks as though you're dead/;

/** Replies after which a player is where he was, should it be too dark to see. */
const DID_NOT_MOVE =
  /There is no way|how to apply|how you are facing|in from out here|You can't|You don't fit|Nothing happens|blocks your way|I don't (?:know|understand)|What\?|Which way|won't fit|no longer seem to remember/;

/** Sentences that take something away from where it stood. */
const VANISHED: readonly (readonly [name: string, by: RegExp])[] = [
  ["snake", /drives the snake away/],
  ["bird", /burnt to a cinder|The little bird is now dead|devoured your bird/],
  ["troll", /scurries away/],
  ["fierce bear", /wolfs down your food/],
  ["gentle bear", /The chain is now unlocked/],
  ["locked chain", /The chain is now unlocked/],
  ["locked grate", /The grate is (?:open|now unlocked)/],
  ["open grate", /The grate is (?:now )?locked/],
  ["crystal bridge", /crystal bridge has vanished/],
  ["food", /wolfs down your food|it was delicious/],
  ["coins", /fresh batteries here/],
  ["vase", /delicate crash/],
  ["rusty door", /freed up the hinges/],
  ["batteries", /replacing the batteries/],
  ["clam", /falls out of the clam/],
];

/** Replies to drop and throw after which the thing is not here either. */
const GONE_FOR_GOOD = /catches your treasure|You aren't carrying it/;

/** Sentences that put something where it was not. */
const APPEARED: readonly (readonly [name: string, by: RegExp])[] = [
  ["gentle bear", /wolfs down your food/],
  ["bear", /The chain is now unlocked/],
  ["chain", /The chain is now unlocked/],
  ["oyster", /falls out of the clam/],
];

const NOTHING: AdventureObservation = {
  text: "",
  room: DARKNESS,
  light: "dark",
  here: [],
  carrying: [],
  lamp: false,
  achieved: [],
  words: {},
  turn: -1,
  deaths: 0,
  over: false,
};

/** What the game's first words show. */
export function firstObservation(text: string): AdventureObservation {
  return observe(NOTHING, { command: "", text, over: false });
}

export interface Reply {
  readonly command: string;
  /** Normalised. */
  readonly text: string;
  /** The program ended with it. */
  readonly over: boolean;
}

/** What a player knows after a reply. */
export function observe(previous: AdventureObservation, reply: Reply): AdventureObservation {
  const { command, text, over } = reply;
  const place = placeAfter(previous, command, text);
  const carrying = carriedAfter(previous, command, text, place.room);
  const here = hereAfter(previous, reply, place, carrying);
  return {
    text,
    ...place,
    here,
    carrying,
    lamp: lampAfter(previous.lamp, text),
    achieved: achievedAfter(previous.achieved, text, place.room, here),
    words: wordsAfter(previous, reply, place.room),
    turn: previous.turn + 1,
    deaths: previous.deaths + (DEATH.test(text) ? 1 : 0),
    over,
  };
}

type Place = Pick<AdventureObservation, "room" | "light">;

/** The last place described is where the player is: falls and magic describe what they pass through. */
function placeAfter(previous: AdventureObservation, command: string, text: string): Place {
  const blocks = paragraphs(text);
  const room = blocks.map(roomOf).findLast((name) => name !== undefined);
  if (!blocks.some((block) => PITCH_DARK.test(block))) {
    return room === undefined ? { room: previous.room, light: previous.light } : { room, light: "lit" };
  }
  const stayed = /^(?:off|extinguish|drop|throw)\b/.test(command) || DID_NOT_MOVE.test(text);
  return { room: stayed ? previous.room : DARKNESS, light: "dark" };
}

function hereAfter(
  previous: AdventureObservation,
  { command, text }: Reply,
  place: Place,
  carrying: readonly string[],
): readonly string[] {
  const blocks = paragraphs(text);
  const described = blocks.findLastIndex((block) => roomOf(block) !== undefined);
  const here = new Set(seenBefore(previous, { command, text, place, described: described >= 0 }, carrying));
  if (place.light === "lit") for (const name of thingsIn(blocks.slice(described + 1))) here.add(name);
  for (const name of fixturesOf(place.room)) here.add(name);
  for (const [name, by] of APPEARED) if (by.test(text)) here.add(name);
  for (const [name, by] of VANISHED) if (by.test(text)) here.delete(name);
  if (DWARVES.test(text)) here.add("dwarf");
  const held = new Set(carrying.map(wordFor));
  return [...here].filter((name) => !held.has(wordFor(name))).sort();
}

/** What need not be shown again: the game lists things only when it describes the place. */
function seenBefore(
  previous: AdventureObservation,
  now: { readonly command: string; readonly place: Place; readonly described: boolean; readonly text: string },
  carrying: readonly string[],
): readonly string[] {
  if (now.described || now.place.room !== previous.room || now.place.light === "dark") return [];
  if (!/^(?:drop|throw)\b/.test(now.command) || GONE_FOR_GOOD.test(now.text)) return previous.here;
  const held = new Set(carrying.map(wordFor));
  const dropped = previous.carrying.filter((name) => !held.has(wordFor(name)));
  const caged = dropped.includes("cage");
  return [...previous.here, ...dropped.map((name) => (name === "caged bird" && !caged ? "bird" : name))];
}

function lampAfter(lamp: boolean, text: string): boolean {
  if (/Your lamp is now on|a lamp shining nearby/.test(text)) return true;
  return lamp && !/Your lamp is now off|Your lamp has run out|a shiny brass lamp nearby/.test(text);
}

function achievedAfter(
  before: readonly string[],
  text: string,
  room: string,
  here: readonly string[],
): readonly string[] {
  const achieved = new Set(before);
  for (const { name, by, undone } of ACHIEVEMENTS) {
    if (undone?.test(text) === true) achieved.delete(name);
    if (by.test(text)) achieved.add(name);
  }
  if (room === "Inside building") {
    for (const name of before.filter((entry) => entry.endsWith(" stored"))) achieved.delete(name);
    for (const name of here.filter(isTreasure)) achieved.add(`${name} stored`);
  }
  return [...achieved].sort();
}

/** A word is worth saying where it was learnt, and where it led: that is how it leads back. */
function wordsAfter(
  previous: AdventureObservation,
  { command, text }: Reply,
  room: string,
): AdventureObservation["words"] {
  const { words } = previous;
  const learnt = MAGIC_WORDS.find(({ word, by }) => words[word] === undefined && by.test(text));
  if (learnt !== undefined) return { ...words, [learnt.word]: [room] };
  const places = words[command];
  if (places === undefined || room === DARKNESS || room === previous.room || places.includes(room)) return words;
  return { ...words, [command]: [...places, room] };
}
