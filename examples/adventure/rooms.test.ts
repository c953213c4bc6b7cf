import { expect, test } from "vitest";

import { roomOf, waysFrom } from "./rooms.js";

test.each([
  ["You are standing at the end of a road before a small brick building.", "You're at end of road again."],
  ["You are inside a building, a well house for a large spring.", "You're inside building."],
  ["You are in a small chamber beneath a 3x3 steel grate to the surface.", "You're below the grate."],
  ["You are in the Hall of the Mountain King, with passages off in all directions.", "You're in Hall of Mt King."],
  ["You are in a large room, with a passage to the south, a passage to the west", 'You\'re at "Y2".'],
  ["You're in the Dark-Room. A corridor leading south is the only exit.", "You're in Dark-Room."],
  ["You are at Witt's End. Passages lead off in *all* directions.", "You're at Witt's End."],
  ["You are standing at the entrance to a large, barren room.", "You're in front of barren room."],
])("roomOf, long and short description of one place, same name: %s", (long, short) => {
  expect(roomOf(long)).toBeDefined();
  expect(roomOf(short)).toBe(roomOf(long));
});

test.each([
  "OK",
  "You are already carrying it!",
  "You're not carrying anything.",
  "You are currently holding the following: Set of keys",
  "You are being followed by a very large, tame bear.",
  "You can't be serious!",
  "There is a threatening little dwarf in the room with you!",
  "It is now pitch dark. If you proceed you will likely fall into a pit.",
])("roomOf, %j, no room", (paragraph) => {
  expect(roomOf(paragraph)).toBeUndefined();
});

test("roomOf, place of another edition of the game, named after its description", () => {
  expect(roomOf("You are standing in a vast library, whose shelves are empty.")).toBe("Vast library");
  expect(roomOf("You're in Library.")).toBe("Library");
});

test("waysFrom, description that names ways, these alone", () => {
  expect(waysFrom("Cobble Crawl")).toEqual(["east", "west"]);
});

test("waysFrom, unknown room, every direction", () => {
  expect(waysFrom("Vast library")).toHaveLength(12);
});
