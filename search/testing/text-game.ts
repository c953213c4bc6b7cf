/**
 * A small text adventure with hidden state, for the tests of this folder: what the player reads does not say how far the wheel of the vault
 * has been turned, nor how much of the candle is left.
 */
export interface GameState {
  readonly room: string;
  readonly carries: readonly string[];
  /** Turns for which the candle still burns; null while it is not lit. */
  readonly candle: number | null;
  /** How many turns of the wheel were right, one after the other. */
  readonly wheel: number;
  readonly isVaultOpen: boolean;
  /** Nothing follows. */
  readonly isDead: boolean;
}

export const VERBS = ["north", "east", "south", "west", "take", "light", "turn left", "turn right"] as const;

const ROOMS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  porch: { north: "hall" },
  hall: { south: "porch", east: "kitchen", west: "library", north: "stairs" },
  kitchen: { west: "hall", north: "pantry" },
  pantry: { south: "kitchen" },
  library: { east: "hall" },
  stairs: { south: "hall", north: "cellar" },
  cellar: { south: "stairs", east: "well", west: "crypt" },
  crypt: { east: "cellar", north: "passage" },
  passage: { south: "crypt", north: "antechamber" },
  antechamber: { south: "passage", north: "vault" },
  vault: { south: "antechamber" },
};
const THINGS: Readonly<Record<string, string>> = { pantry: "candle", library: "match", vault: "crown" };
/** Without light the next step there is the last. */
const DARK = new Set(["cellar", "crypt", "passage", "antechamber", "vault"]);
const BURNS = 26;
const COMBINATION = ["turn left", "turn right", "turn right"];

export const FIRST: GameState = {
  room: "porch",
  carries: [],
  candle: null,
  wheel: 0,
  isVaultOpen: false,
  isDead: false,
};

/** What the player reads. */
export function read({ room, carries, candle, isVaultOpen, isDead }: GameState): string {
  if (isDead) return "It is dark. You fall and do not get up again.";
  const isLit = candle !== null && candle > 0;
  if (DARK.has(room) && !isLit) return "It is dark here.";
  const door = room === "antechamber" ? ` The vault is ${isVaultOpen ? "open" : "shut; it has a wheel"}.` : "";
  const thing = THINGS[room];
  const offer = thing !== undefined && !carries.includes(thing) ? ` There is a ${thing} here.` : "";
  return `You are in the ${room}.${door}${offer} You carry ${carries.length === 0 ? "nothing" : carries.join(", ")}.${isLit ? " Your candle burns." : ""}`;
}

export function act(state: GameState, verb: string): GameState {
  if (state.isDead) throw new Error("The game is over");
  const { candle } = state;
  const burnt = { ...state, candle: candle === null ? null : Math.max(0, candle - 1) };
  const isLit = burnt.candle !== null && burnt.candle > 0;
  if (DARK.has(state.room) && !isLit && verb !== "light") return { ...burnt, isDead: true };
  if (verb === "take") return take(burnt);
  if (verb === "light") return light(burnt);
  if (verb.startsWith("turn")) return turn(burnt, verb);
  const room = ROOMS[state.room]?.[verb];
  if (room === undefined || (room === "vault" && !state.isVaultOpen)) return burnt;
  // Down the well, and a wheel that is left springs back.
  return { ...burnt, room, wheel: 0, isDead: room === "well" };
}

function take(state: GameState): GameState {
  const thing = THINGS[state.room];
  if (thing === undefined || state.carries.includes(thing)) return state;
  return { ...state, carries: [...state.carries, thing].sort() };
}

function light(state: GameState): GameState {
  const canLight = state.candle === null && state.carries.includes("candle") && state.carries.includes("match");
  return canLight ? { ...state, candle: BURNS } : state;
}

function turn(state: GameState, verb: string): GameState {
  if (state.room !== "antechamber" || state.isVaultOpen) return state;
  const wheel = verb === COMBINATION[state.wheel] ? state.wheel + 1 : Number(verb === COMBINATION[0]);
  return { ...state, wheel, isVaultOpen: wheel === COMBINATION.length };
}

/** All different texts that can be read before the end, by looking at every state that can be reached. */
export function allTexts(): Set<string> {
  const texts = new Set([read(FIRST)]);
  const seen = new Set([JSON.stringify(FIRST)]);
  const open = [FIRST];
  for (let state = open.pop(); state !== undefined; state = open.pop()) {
    for (const verb of VERBS) {
      const next = act(state, verb);
      const name = JSON.stringify(next);
      if (next.isDead || seen.has(name)) continue;
      seen.add(name);
      texts.add(read(next));
      open.push(next);
    }
  }
  return texts;
}
