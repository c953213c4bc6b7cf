/** What can lie or stand in a place, and the sentences by which the game tells. */

export interface Thing {
  /** Its name in observations. */
  readonly name: string;
  /** The word that the game takes for it. */
  readonly word: string;
  /** The sentence that says it is here. */
  readonly sight: RegExp;
  readonly kind: "tool" | "treasure" | "scenery";
}

function tool(name: string, sight: RegExp, word = name): Thing {
  return { name, word, sight, kind: "tool" };
}

function treasure(name: string, sight: RegExp): Thing {
  return { name, word: name, sight, kind: "treasure" };
}

/** What cannot be carried, or not yet. */
function scenery(name: string, sight: RegExp, word = name): Thing {
  return { name, word, sight, kind: "scenery" };
}

const THINGS: readonly Thing[] = [
  tool("keys", /some keys on the ground/),
  tool("lamp", /a shiny brass lamp nearby|a lamp shining nearby/),
  tool("cage", /a small wicker cage/),
  tool("rod", /black rod with a rusty (?:star|mark)/),
  tool("bird", /A cheerful little bird is sitting/),
  tool("caged bird", /a little bird in the cage/, "bird"),
  tool("pillow", /A small velvet pillow|on a velvet pillow/),
  tool("clam", /an enormous clam here/),
  tool("oyster", /an enormous oyster here/),
  tool("magazine", /"Spelunker Today" magazine here/),
  tool("food", /There is food here/),
  tool("bottle of water", /a bottle of water here/, "bottle"),
  tool("bottle of oil", /a bottle of oil here/, "bottle"),
  tool("bottle", /an empty bottle here/),
  tool("axe", /There is a little axe here/),
  tool("batteries", /fresh batteries here/),
  tool("bear", /a contented-looking bear/),
  treasure("gold", /a large sparkling nugget of gold here/),
  treasure("diamonds", /There are diamonds here/),
  treasure("silver", /There are bars of silver here/),
  treasure("jewelry", /precious jewelry here/),
  treasure("coins", /many coins here/),
  treasure("chest", /The pirate's treasure chest is here/),
  treasure("eggs", /a large nest here, full of golden eggs/),
  treasure("trident", /a jewel-encrusted trident here/),
  treasure("vase", /a delicate, precious, Ming vase here|The vase is now resting/),
  treasure("emerald", /an emerald here the size of/),
  treasure("pyramid", /a platinum pyramid here/),
  treasure("pearl", /lies a glistening pearl/),
  treasure("rug", /a Persian rug spread out/),
  treasure("spices", /There are rare spices here/),
  treasure("chain", /a golden chain lying in a heap/),
  scenery("locked grate", /The grate is (?:now )?locked/, "grate"),
  scenery("open grate", /The grate is (?:open|now unlocked)/, "grate"),
  scenery("rusty door", /barred by a massive, rusty, iron door/, "door"),
  scenery("snake", /A huge green fierce snake bars/),
  scenery("crystal bridge", /A crystal bridge now spans/),
  scenery("thirsty plant", /murmuring "Water, water|bellowing "WATER/, "plant"),
  scenery("beanstalk", /a gigantic beanstalk|a huge beanstalk/),
  scenery("dragon", /A huge green fierce dragon bars/),
  scenery("troll", /A burly troll stands by|The troll steps out from beneath/),
  scenery("fierce bear", /a ferocious cave bear/, "bear"),
  scenery("gentle bear", /a gentle cave bear/, "bear"),
  scenery("locked chain", /locked to the wall with a golden chain|a golden chain locked/, "chain"),
  scenery("machine", /a massive vending machine/),
];

/** What is always in a place, whether its long or its short description was printed. */
const FIXTURES: Readonly<Record<string, readonly string[]>> = {
  "End of road": ["water"],
  "Inside building": ["water"],
  Valley: ["water"],
  "Slit in streambed": ["water"],
  "Bottom of small pit": ["water"],
  "Cavern with waterfall": ["water"],
  Reservoir: ["water"],
  "East pit": ["oil"],
  "East bank of fissure": ["fissure"],
  "West bank of fissure": ["fissure"],
};

const BY_NAME: ReadonlyMap<string, Thing> = new Map(THINGS.map((thing) => [thing.name, thing]));

export function isPortable(name: string): boolean {
  return (BY_NAME.get(name)?.kind ?? "scenery") !== "scenery";
}

export function isTreasure(name: string): boolean {
  return BY_NAME.get(name)?.kind === "treasure";
}

/** The word that the game takes for a thing: "bottle" for a "bottle of water". */
export function wordFor(name: string): string {
  return BY_NAME.get(name)?.word ?? name;
}

/** What is always in a room. */
export function fixturesOf(room: string): readonly string[] {
  return FIXTURES[room] ?? [];
}

/** What paragraphs show, in the table's order. */
export function thingsIn(paragraphs: readonly string[]): readonly string[] {
  const text = paragraphs.join("\n");
  return THINGS.filter((thing) => thing.sight.test(text)).map((thing) => thing.name);
}
