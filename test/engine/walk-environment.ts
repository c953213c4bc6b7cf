/** A small environment over the fake daemon. Variants by query of the module's URL, such as `?fail=step`. */

import type { Environment } from "../../engine/environment.js";
import type { Walk } from "./walk-program.js";

type Seen = Omit<Walk, "moves"> & { readonly moves: number };

const query = new URL(import.meta.url).searchParams;
const fail = query.get("fail");

function failing(call: string): void {
  if (fail === call) throw new Error(`${call} is broken`);
}

const environment: Environment<Seen> = {
  name: "walk",
  image: { debian: {} },
  stepTimeoutMs: Number(query.get("timeout") ?? 5_000),
  warmUp: async ({ sandbox }) => {
    failing("warmUp");
    const terminal = await sandbox.openPty(["walk"], { name: "game" });
    await terminal.read().untilInput();
  },
  reset: async () => {
    failing("reset");
    return { x: 0, y: 0, gold: false, moves: 0, dead: false };
  },
  step: async ({ sandbox, signal }, action, previous) => {
    if (fail === "hang" && previous.moves >= 3) await new Promise(() => undefined);
    if (fail === "spin" && previous.moves >= 3) for (;;);
    if (fail === "exit" && previous.moves >= 3) process.exit(3);
    if (previous.moves >= 3) failing("step");
    const output = await sandbox.pty("game").send(`${action}\n`).untilInput({ signal });
    const lines = output.text.trim().split("\n");
    const observation = JSON.parse(lines.at(-1) ?? "") as Seen;
    const shown = fail === "date" ? { ...observation, at: new Date() } : observation;
    return { observation: shown, reward: 0, terminated: observation.dead, truncated: false };
  },
  actions: () => {
    failing("actions");
    return ["north", "south", "west", "east", "take", "jump"];
  },
  cell: ({ x, y, gold, moves }) => {
    if (moves >= 2) failing("cell");
    return `${x},${y}${gold ? " with gold" : ""}`;
  },
  landmarks: ({ x, y }) => ({ room: `${x},${y}` }),
  ...(query.has("free")
    ? {}
    : {
        score: async ({ sandbox, signal }, observation) => {
          failing("score");
          if (observation.dead) return -10;
          const output = await sandbox.pty("game").send("score\n").untilInput({ signal });
          return Number(output.text.trim().split("\n").at(-1));
        },
      }),
};

export default environment;
