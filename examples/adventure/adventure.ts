/**
 * Colossal Cave Adventure, the unmodified `adventure` program of Debian's bsdgames, as an environment. Its state lives in
 * the memory of one process and nowhere else: only a fork of the machine takes a player back to where he was.
 */

import { defineEnvironment } from "../../index.js";
import { actionsFor } from "./actions.js";
import { cellOf } from "./cell.js";
import { gameError } from "./errors.js";
import { type AdventureObservation, firstObservation, observe } from "./observation.js";
import { DARKNESS } from "./rooms.js";
import { asksYesOrNo, normalise } from "./text.js";

type Context = Parameters<ReturnType<typeof defineEnvironment<AdventureObservation>>["step"]>[0];
type Terminal = ReturnType<Context["sandbox"]["pty"]>;

const PROGRAM = "/usr/games/adventure";
const TERMINAL = "game";
const NOTES = "/var/tmp/coppice-adventure";
const OPENING = `${NOTES}/opening`;

/** The game's clock starts here, seeds apart: 2001-09-09, an ordinary day long after the game's own epoch of 1977. */
const EPOCH_SECONDS = 1_000_000_000;
/** Keeps the clock below 2038, where programs of that age stop counting. */
const SEEDS = 1_000_000_000;
/** The game asks at most two questions in a row (a hint, its price). */
const MAX_QUESTIONS = 4;
/** The game reads 20 letters of a word and two words. */
const MAX_COMMAND = 64;

/** The second that the game's clock shows when it starts: all that the game's dice depend on. */
export function startSecond(seed: number): number {
  return EPOCH_SECONDS + (((Math.trunc(seed) % SEEDS) + SEEDS) % SEEDS);
}

interface Answer {
  readonly text: string;
  readonly over: boolean;
}

/** Sends lines, one by one as a typist would ahead of the program, and waits until the game wants the next. */
async function say(terminal: Terminal, lines: readonly string[], signal: AbortSignal): Promise<Answer> {
  const typed = lines.map((line) => `${line}\n`).join("");
  const output = await terminal.send(typed).untilInput({ signal });
  const over = output.exit !== null || output.reason === "exit";
  if (!over && output.reason !== "input") {
    throw gameError(
      "GAME_STUCK",
      `The game did not ask for a command after '${lines.join("', '")}' (${output.reason}).`,
      "Raise the environment's stepTimeoutMs if the machine is very slow.",
    );
  }
  return { text: normalise(output.text, lines), over };
}

/**
 * What keeps the clock standing, for the game alone: it seeds its dice with the second in which it starts, and on a busy
 * machine no clock that runs can promise which one that is.
 */
function standingClock(second: number): Readonly<Record<string, string>> {
  const time = new Date(second * 1_000).toISOString().slice(0, 19).replace("T", " ");
  return { LD_PRELOAD: "/usr/$LIB/faketime/libfaketime.so.1", FAKETIME: time, TZ: "UTC" };
}

/** The game as it starts in exactly the second `second`. */
async function startIn(second: number, { sandbox, signal }: Context): Promise<Terminal> {
  const env = standingClock(second);
  const terminal = await sandbox.openPty([PROGRAM], { name: TERMINAL, columns: 80, rows: 24, env, signal });
  const welcome = await say(terminal, [], signal);
  // A clock that could not be loaded would be the first thing to be complained of here.
  if (!welcome.over && welcome.text.startsWith("Welcome to Adventure")) return terminal;
  throw gameError(
    "GAME_SETUP_FAILED",
    `The game did not start: ${JSON.stringify(welcome.text.slice(0, 200))}.`,
    "Check that the image has the packages bsdgames and libfaketime.",
  );
}

/** A line that the game reads as one command, or an error that says why it cannot be. */
function commandFrom(action: string): string {
  const command = action.trim();
  if (command !== "" && command.length <= MAX_COMMAND && /^[\x20-\x7e]+$/.test(command)) return command;
  throw gameError(
    "GAME_COMMAND_INVALID",
    `${JSON.stringify(action.slice(0, 80))} is not a command.`,
    `Give one line of 1 to ${MAX_COMMAND} printable ASCII characters.`,
  );
}

/**
 * Answers what insists on yes or no with no: hints cost points, quitting ends the game, and a dead player stays dead,
 * because going back to an earlier checkpoint is cheaper than ten points for reincarnation.
 */
async function declineQuestions(terminal: Terminal, reply: Answer, signal: AbortSignal): Promise<Answer> {
  let text = reply.text;
  let latest = reply;
  for (let asked = 0; !latest.over && asksYesOrNo(latest.text); asked += 1) {
    if (asked === MAX_QUESTIONS) {
      throw gameError(
        "GAME_STUCK",
        `The game asked ${MAX_QUESTIONS + 1} questions in a row: ${JSON.stringify(text.slice(-200))}.`,
        "This is not the game that the environment knows; check the image.",
      );
    }
    latest = await say(terminal, ["no"], signal);
    // "OK" only says that the no was understood; left in, it would read as the answer to the command.
    text = `${text}\n\n${latest.text.replace(/^OK(?:\n+|$)/, "")}`.trim();
  }
  return { text, over: latest.over };
}

/** Either form: asked for in the middle of a game, or told at its end. */
function scoreIn(text: string): number {
  const found = /you would score (-?\d+) out of a|You scored (-?\d+) out of a/.exec(text.replace(/\s+/g, " "));
  const points = found?.[1] ?? found?.[2];
  if (points !== undefined) return Number(points);
  throw gameError(
    "GAME_SCORE_UNREADABLE",
    `The game did not say a score: ${JSON.stringify(text.slice(0, 200))}.`,
    "This is not the game that the environment knows; check the image.",
  );
}

export const adventure = defineEnvironment<AdventureObservation>({
  name: "adventure",
  image: { debian: { packages: ["bsdgames", "libfaketime"] } },

  warmUp: async ({ sandbox, signal, seed }) => {
    const terminal = await startIn(startSecond(seed), { sandbox, signal });
    const opening = await say(terminal, ["no"], signal);
    await sandbox.files.mkdir(NOTES, { signal });
    await sandbox.files.write(OPENING, opening.text, { signal });
  },

  // Looking would be a turn of the game, so the first words were written down.
  reset: async ({ sandbox, signal }) => {
    const opening = new TextDecoder().decode(await sandbox.files.read(OPENING, { signal }));
    return firstObservation(normalise(opening));
  },

  step: async ({ sandbox, signal }, action, previous) => {
    const command = commandFrom(action);
    if (previous.over) return { observation: previous, reward: 0, terminated: true, truncated: false };
    const terminal = sandbox.pty(TERMINAL);
    const first = await say(terminal, [command], signal);
    const { text, over } = await declineQuestions(terminal, first, signal);
    const observation = observe(previous, { command, text, over });
    // Points are told only when asked for: see score.
    return { observation, reward: 0, terminated: over, truncated: false };
  },

  actions: actionsFor,
  cell: cellOf,
  // A place that is too dark to see is no discovery.
  landmarks: ({ room }): Readonly<Record<string, string>> => (room === DARKNESS ? {} : { room }),

  score: async ({ sandbox, signal }, observation) => {
    if (observation.over) return scoreIn(observation.text);
    // The game asks whether to quit then; the "no" is typed ahead, which saves a round trip.
    const { text } = await say(sandbox.pty(TERMINAL), ["score", "no"], signal);
    return scoreIn(text);
  },
});
