import { expect, test } from "vitest";

import { asksYesOrNo, normalise, paragraphs } from "./text.js";

test("normalise, terminal output with echo and carriage returns, only what the game said", () => {
  const raw = "take lamp\r\n\r\nOK\r\n";
  expect(normalise(raw, ["take lamp"])).toBe("OK");
});

test("normalise, two lines typed ahead, both echoes removed", () => {
  const raw = "score\r\nno\r\nIf you were to quit now, you would score 32.\r\n\r\nOK\r\n";
  expect(normalise(raw, ["score", "no"])).toBe("If you were to quit now, you would score 32.\n\nOK");
});

test("normalise, control characters and bells of a hostile guest, blanks", () => {
  expect(normalise("a\u001b[2Jb\u0007c\r\n")).toBe("a [2Jb c");
});

test("normalise, endless output, cut", () => {
  expect(normalise("x".repeat(100_000)).length).toBeLessThanOrEqual(16_384);
});

test("paragraphs, description and object, one line each", () => {
  const text = "You are in a valley in the forest beside a stream tumbling along a\nrocky bed.\n\nThere is food here.";
  expect(paragraphs(text)).toEqual([
    "You are in a valley in the forest beside a stream tumbling along a rocky bed.",
    "There is food here.",
  ]);
});

test.each([
  "Welcome to Adventure!! Would you like instructions?",
  "Do you really want to quit now?",
  "Are you trying to get into the cave?",
  "I am prepared to give you a hint, but it will cost you 2 points.\n\nDo you want the hint?",
  "Oh dear, you seem to have gotten yourself killed. I might be able to\nhelp you out, but I've never really done this before. Do you want me\nto try to reincarnate you?",
  "Now you've really done it! I'm out of orange smoke! You don't expect\nme to do a decent reincarnation without any orange smoke, do you?",
  "You would score 32 out of a possible 350.\nDo you indeed wish to quit now?",
  "Please answer the question.\n\nIs this a question that nobody knows?",
  "Please answer the question.",
])("asksYesOrNo, %j, yes", (text) => {
  expect(asksYesOrNo(text)).toBe(true);
});

test.each([
  "What?",
  "take what?",
  "What do you want to do with the lamp?",
  "With what? Your bare hands?",
  "I'm game. Would you care to explain how?",
  "OK",
  "Do you really want to quit now?\n\nOK",
  "",
])("asksYesOrNo, %j, no", (text) => {
  expect(asksYesOrNo(text)).toBe(false);
});
