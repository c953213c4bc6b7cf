import { expect, test } from "vitest";

import { actionsFor } from "./actions.js";
import { type AdventureObservation, firstObservation } from "./observation.js";

const road = firstObservation("You are standing at the end of a road before a small brick building.");

function inCave(known: Partial<AdventureObservation>): readonly string[] {
  return actionsFor({ ...road, room: "Bird Chamber", lamp: true, ...known });
}

test("actionsFor, any observation, a fixed order without repeats", () => {
  const actions = inCave({ here: ["bird", "lamp"], carrying: ["rod"] });
  expect(actions).toEqual(["east", "west", "take bird", "take lamp", "drop rod"]);
  expect(new Set(actions).size).toBe(actions.length);
});

test("actionsFor, start, the ways that the description speaks of", () => {
  expect(actionsFor(road)).toEqual(["road", "building", "forest", "gully"]);
});

test.each([
  ["locked grate and keys", { here: ["locked grate"], carrying: ["keys"] }, "unlock grate"],
  ["snake and bird", { here: ["snake"], carrying: ["cage", "caged bird"] }, "drop bird"],
  ["fissure and rod", { here: ["fissure"], carrying: ["rod"] }, "wave rod"],
  ["dwarf and axe", { here: ["dwarf"], carrying: ["axe"] }, "throw axe"],
  ["dragon", { here: ["dragon"] }, "kill dragon"],
  ["dragon, asked whether with bare hands", { here: ["dragon"], text: "With what? Your bare hands?" }, "yes"],
  ["thirsty plant and water", { here: ["thirsty plant"], carrying: ["bottle of water"] }, "pour water"],
  ["troll and treasure", { here: ["troll"], carrying: ["gold"] }, "throw gold"],
  ["building and treasure", { room: "Inside building", carrying: ["gold"] }, "drop gold"],
  ["full hands", { text: "You can't carry anything more. You'll have to drop", carrying: ["keys"] }, "drop keys"],
  ["cave without a light", { lamp: false, carrying: ["lamp"] }, "on"],
  ["known word where it works", { words: { plugh: ["Bird Chamber"] } }, "plugh"],
])("actionsFor, %s, offers %3$s", (_name, known, action) => {
  expect(inCave(known)).toContain(action);
});

test("actionsFor, word that works elsewhere, not offered", () => {
  expect(inCave({ words: { plugh: ["Y2"] } })).not.toContain("plugh");
});

test("actionsFor, dark with a lamp, light it or go back; without one, grope", () => {
  expect(inCave({ room: "Darkness", light: "dark", lamp: false, carrying: ["lamp"] })).toEqual(["back", "on"]);
  expect(inCave({ room: "Darkness", light: "dark", lamp: false }).length).toBeGreaterThan(10);
});
