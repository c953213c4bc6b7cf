import { expect, test } from "vitest";

import { adventure, startSecond } from "./adventure.js";
import { cellOf } from "./cell.js";
import { firstObservation } from "./observation.js";
import { stubGame } from "./stub-game.js";

const WELCOME = { text: "\r\nWelcome to Adventure!!  Would you like instructions?\r\n" };
const ROAD = "You are standing at the end of a road before a small brick building.";
const start = firstObservation(ROAD);

test("startSecond, seeds of any size and sign, a second before 2038", () => {
  for (const seed of [0, 1, -1, 2 ** 40, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]) {
    expect(startSecond(seed)).toBeGreaterThanOrEqual(1_000_000_000);
    expect(startSecond(seed)).toBeLessThan(2 ** 31 - 1);
  }
  expect(startSecond(7)).not.toBe(startSecond(8));
});

test("warmUp, seed, the game's clock stands in its second, no instructions, first words written down", async () => {
  const stub = stubGame([WELCOME, { text: `no\r\n\r\n${ROAD}\r\n` }]);
  await adventure.warmUp?.({ ...stub.context, seed: 7 });
  expect(stub.typed).toEqual(["", "no\n"]);
  expect(stub.env).toMatchObject({ FAKETIME: "2001-09-09 01:46:47", TZ: "UTC" });
  await expect(adventure.reset({ ...stub.context, seed: 7 })).resolves.toMatchObject({ room: "End of road", turn: 0 });
});

test("warmUp, clock that could not be loaded, GAME_SETUP_FAILED", async () => {
  const complaint = "ERROR: ld.so: object 'libfaketime.so.1' from LD_PRELOAD cannot be preloaded: ignored.";
  const stub = stubGame([{ text: `${complaint}${WELCOME.text}` }]);
  await expect(adventure.warmUp?.({ ...stub.context, seed: 7 })).rejects.toMatchObject({ code: "GAME_SETUP_FAILED" });
});

test("warmUp, another program, GAME_SETUP_FAILED that quotes it", async () => {
  const stub = stubGame([{ text: "bash: adventure: not found", reason: "exit" }]);
  await expect(adventure.warmUp?.({ ...stub.context, seed: 7 })).rejects.toThrow(/not found/);
});

test("step, a hint is offered, declined, and the no is no answer to the command", async () => {
  const stub = stubGame([
    { text: "take keys\r\nI see no keys here\r\n\r\nAre you trying to get into the cave?\r\n" },
    { text: "no\r\n\r\nOK\r\n" },
  ]);
  const { observation, terminated } = await adventure.step(stub.context, "take keys", start);
  expect(stub.typed).toEqual(["take keys\n", "no\n"]);
  expect(terminated).toBe(false);
  expect(observation.carrying).toEqual([]);
});

test("step, death, stays dead and terminates", async () => {
  const stub = stubGame([
    {
      text: "You fell into a pit and broke every bone in your body!\n\nOh dear, you seem to have gotten yourself killed. Do you want me to try to reincarnate you?",
    },
    { text: "no\n\nOK\n\n\nYou scored 22 out of a possible 350 using 3 turns.", reason: "exit" },
  ]);
  const { observation, terminated } = await adventure.step(stub.context, "down", start);
  expect(terminated).toBe(true);
  expect(observation).toMatchObject({ over: true, deaths: 1 });
  expect(cellOf(observation)).toBe("over");
  await expect(adventure.score?.(stub.context, observation)).resolves.toBe(22);
});

test("step, episode that is over, terminated again and nothing typed", async () => {
  const stub = stubGame([]);
  const ended = { ...start, over: true };
  await expect(adventure.step(stub.context, "down", ended)).resolves.toMatchObject({ terminated: true });
  expect(stub.typed).toEqual([]);
});

test("step, questions without end, GAME_STUCK", async () => {
  const stub = stubGame(Array.from({ length: 20 }, () => ({ text: "Do you want the hint?" })));
  await expect(adventure.step(stub.context, "down", start)).rejects.toMatchObject({ code: "GAME_STUCK" });
});

test("step, game that never asks for a command, GAME_STUCK", async () => {
  const stub = stubGame([{ text: "", reason: "timeout" }]);
  await expect(adventure.step(stub.context, "down", start)).rejects.toMatchObject({ code: "GAME_STUCK" });
});

test.each(["", "  ", "quit\nyes", "take\u0003", "søg", "x".repeat(65)])(
  "step, action %j, GAME_COMMAND_INVALID and nothing typed",
  async (action) => {
    const stub = stubGame([]);
    await expect(adventure.step(stub.context, action, start)).rejects.toMatchObject({ code: "GAME_COMMAND_INVALID" });
    expect(stub.typed).toEqual([]);
  },
);

test("score, in the middle of a game, asked for with the no typed ahead", async () => {
  const stub = stubGame([
    {
      text: "score\r\nno\r\nIf you were to quit now, you would score 57 out of a possible 350.\r\nDo you indeed wish to quit now?\r\n\r\nOK\r\n",
    },
  ]);
  await expect(adventure.score?.(stub.context, start)).resolves.toBe(57);
  expect(stub.typed).toEqual(["score\nno\n"]);
});

test("score, answer without a number, GAME_SCORE_UNREADABLE", async () => {
  const stub = stubGame([{ text: "I don't know that word." }]);
  await expect(adventure.score?.(stub.context, start)).rejects.toMatchObject({ code: "GAME_SCORE_UNREADABLE" });
});

test("landmarks, a place too dark to see, none", () => {
  expect(adventure.landmarks?.({ ...start, room: "Darkness", light: "dark" })).toEqual({});
  expect(adventure.landmarks?.(start)).toEqual({ room: "End of road" });
});
