import { expect, test } from "vitest";

import { type AdventureObservation, firstObservation, observe } from "./observation.js";

/** Replies as the game gave them, one after the other in one game. */
const RECORDED: readonly (readonly [command: string, text: string, known: Partial<AdventureObservation>])[] = [
  [
    "building",
    "You are inside a building, a well house for a large spring.\n\nThere are some keys on the ground here.\n\nThere is a shiny brass lamp nearby.\n\nThere is food here.\n\nThere is a bottle of water here.",
    { room: "Inside building", here: ["bottle of water", "food", "keys", "lamp", "water"] },
  ],
  ["take lamp", "OK", { carrying: ["lamp"], here: ["bottle of water", "food", "keys", "water"] }],
  ["take bottle", "OK", { carrying: ["bottle of water", "lamp"], room: "Inside building" }],
  ["on", "Your lamp is now on.", { lamp: true }],
  ["drop bottle", "OK", { carrying: ["lamp"], here: ["bottle of water", "food", "keys", "water"] }],
  ["out", "You're at end of road again.", { room: "End of road", here: ["water"] }],
  ["take food", "I see no food here", { carrying: ["lamp"], room: "End of road" }],
];

const road = firstObservation("You are standing at the end of a road before a small brick building.");

function after(previous: AdventureObservation, command: string, text: string): AdventureObservation {
  return observe(previous, { command, text, over: false });
}

test("firstObservation, the game's first words, start with empty hands", () => {
  expect(road).toMatchObject({ room: "End of road", light: "lit", carrying: [], lamp: false, turn: 0, over: false });
});

test("observe, recorded replies, what a player knows after each", () => {
  let now = road;
  for (const [command, text, known] of RECORDED) {
    now = after(now, command, text);
    expect(now, command).toMatchObject(known);
  }
  expect(now.turn).toBe(RECORDED.length);
});

test("observe, every field, survives JSON unchanged", () => {
  const now = after(road, "building", RECORDED[0]?.[1] ?? "");
  expect(JSON.parse(JSON.stringify(now))).toEqual(now);
});

test("observe, a fall or magic that describes two places, the last one", () => {
  const text = "The dome is unclimbable.\n\nYou're in Hall of Mists.\n\nRough stone steps lead up the dome.";
  expect(after(road, "up", text).room).toBe("Hall of Mists");
});

test("observe, moved in the dark, place unknown; refused in the dark, place as before", () => {
  const dark = "It is now pitch dark. If you proceed you will likely fall into a pit.";
  const crawl = { ...road, room: "Cobble Crawl" };
  expect(after(crawl, "west", dark)).toMatchObject({ room: "Darkness", light: "dark", here: [] });
  expect(after(crawl, "off", `Your lamp is now off.\n\n${dark}`)).toMatchObject({
    room: "Cobble Crawl",
    light: "dark",
  });
  const refused = `There is no way to go that direction.\n\n${dark}`;
  expect(after({ ...crawl, light: "dark" }, "north", refused)).toMatchObject({ room: "Cobble Crawl", light: "dark" });
});

test("observe, caged bird, taken and dropped with and without its cage", () => {
  const chamber = { ...road, room: "Bird Chamber", here: ["bird"], carrying: ["cage"] };
  const caught = after(chamber, "take bird", "OK");
  expect(caught).toMatchObject({ carrying: ["cage", "caged bird"], here: [] });
  expect(after(caught, "drop bird", "OK")).toMatchObject({ carrying: ["cage"], here: ["bird"] });
  const caged = after(caught, "drop cage", "OK");
  expect(caged).toMatchObject({ carrying: [], here: ["cage", "caged bird"] });
  expect(after(caged, "take cage", "OK").carrying).toEqual(["cage", "caged bird"]);
});

test("observe, the bird drives the snake away, snake gone", () => {
  const hall = { ...road, room: "Hall of Mt King", here: ["snake"], carrying: ["cage", "caged bird"] };
  const text = "The little bird attacks the green snake, and in an astounding flurry\ndrives the snake away.";
  expect(after(hall, "drop bird", text)).toMatchObject({
    achieved: ["snake gone"],
    here: ["bird"],
    carrying: ["cage"],
  });
});

test("observe, a treasure in the building, stored until it is taken away again", () => {
  const building = { ...road, room: "Inside building", here: ["water"], carrying: ["gold", "lamp"] };
  const stored = after(building, "drop gold", "OK");
  expect(stored.achieved).toEqual(["gold stored"]);
  const outside = after(stored, "out", "You're at end of road again.");
  expect(outside.achieved).toEqual(["gold stored"]);
  expect(after(stored, "take gold", "OK").achieved).toEqual([]);
});

test("observe, the pirate, treasures gone and tools left", () => {
  const rich = { ...road, carrying: ["gold", "lamp", "silver"] };
  const text = "Out from the shadows behind you pounces a bearded pirate! He snatches your treasure and vanishes.";
  expect(after(rich, "west", text).carrying).toEqual(["lamp"]);
});

test("observe, a treasure thrown to the troll, gone for good", () => {
  const chasm = { ...road, room: "SW side of chasm", here: ["troll"], carrying: ["gold", "lamp"] };
  const text = "The troll catches your treasure and scurries away out of sight.";
  expect(after(chasm, "throw gold", text)).toMatchObject({ carrying: ["lamp"], here: [], achieved: ["troll paid"] });
});

test("observe, the bottle, what it holds", () => {
  const pit = { ...road, room: "West pit", here: ["thirsty plant"], carrying: ["bottle of water", "lamp"] };
  const watered = after(pit, "pour water", "The plant spurts into furious growth for a few seconds.");
  expect(watered).toMatchObject({ carrying: ["bottle", "lamp"], achieved: ["plant tall"] });
  expect(after(watered, "fill bottle", "Your bottle is now full of oil.").carrying).toEqual(["bottle of oil", "lamp"]);
});

test("observe, a dwarf, in sight until a description without one", () => {
  const met = after(
    road,
    "east",
    "There is a threatening little dwarf in the room with you!\n\nYou're in Hall of Mists.",
  );
  expect(met.here).toEqual(["dwarf"]);
  expect(after(met, "take keys", "I see no keys here").here).toEqual(["dwarf"]);
  expect(after(met, "up", "You're at top of small pit.").here).toEqual([]);
});

test("observe, a magic word, worth saying where it was learnt and where it led", () => {
  const text = 'You are in a debris room. A note on the wall says "Magic word XYZZY".';
  const debris = after(road, "west", text);
  expect(debris.words).toEqual({ xyzzy: ["Debris Room"] });
  const led = after(debris, "xyzzy", "You're inside building.");
  expect(led.words).toEqual({ xyzzy: ["Debris Room", "Inside building"] });
  expect(after(led, "xyzzy", "Nothing happens.").words).toEqual(led.words);
});
