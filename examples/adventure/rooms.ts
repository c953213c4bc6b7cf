/**
 * Which place a paragraph describes. The game has a long description for a first visit and, for many places, a short one
 * for the next four, with few words in common: who has been there knows that both are the same place, and this table is
 * that knowledge. A place that it lacks is named after its own description, so that another edition of the game still
 * has rooms, only with a long and a short name each.
 *
 * Places that the game describes with equal words (the forest, the maze of passages "all alike", the windows on the pit)
 * are one place here too: a player cannot tell them apart either.
 */

/** Name, and how the long description begins. The name of a place with a short description is what that one says. */
const LONG_DESCRIPTIONS: readonly (readonly [name: string, beginning: string, ways: string])[] = [
  ["End of road", "You are standing at the end of a road", "road building forest gully"],
  ["Hill in road", "You have walked up a hill", "road building"],
  ["Inside building", "You are inside a building,", "out"],
  ["Valley", "You are in a valley", "upstream downstream building"],
  ["Forest", "You are in open forest", "valley road forest"],
  ["Slit in streambed", "At your feet all the water", "upstream downstream building"],
  ["Outside grate", "You are in a 20-foot depression", "in upstream building"],
  ["Below the grate", "You are in a small chamber beneath", "up west"],
  ["Cobble Crawl", "You are crawling over cobbles", "east west"],
  ["Debris Room", "You are in a debris room", "east west up"],
  ["Sloping canyon", "You are in an awkward sloping east/west canyon", "east west up down"],
  ["Bird Chamber", "You are in a splendid chamber", "east west"],
  ["Top of small pit", "At your feet is a small pit", "east down"],
  ["Hall of Mists", "You are at one end of a vast hall", "west north south down up"],
  ["East bank of fissure", "You are on the east bank of a fissure", "east over"],
  ["Nugget of Gold Room", "This is a low room with a crude note", ""],
  ["Hall of Mt King", "You are in the Hall of the Mountain King", "north south east west ne se sw nw up"],
  ["West end of Twopit Room", "You are at the west end of the Twopit Room", "east west down"],
  ["East pit", "You are at the bottom of the eastern pit", "up out"],
  ["West pit", "You are at the bottom of the western pit", "up out"],
  ["West bank of fissure", "You are on the west side of the fissure", "over north south west"],
  ["Hole in N/S passage", "You are in a low N/S passage", "north south down"],
  ["South side chamber", "You are in the south side chamber", ""],
  ["West side chamber", "You are in the west side chamber", "east west up"],
  ["Y2", "You are in a large room, with a passage to the south", "south west east"],
  ["Jumble of rock", "You are in a jumble of rock", ""],
  ["Window on pit", "You're at a low window overlooking a huge pit", ""],
  ["Dirty passage", "You are in a dirty broken passage", "east west up"],
  ["Brink of small pit", "You are on the brink of a small clean climbable pit", "west down"],
  ["Bottom of small pit", "You are in the bottom of a small pit", "up"],
  ["Dusty Rock room", "You are in a large room full of dusty rocks", "east down"],
  ["West end of Hall of Mists", "You are at the west end of Hall of Mists", "east west north south"],
  [
    "Maze, all alike",
    "You are in a maze of twisty little passages, all alike",
    "north south east west ne se sw nw up down",
  ],
  ["Dead end crawl", "Dead end crawl", "out crawl"],
  ["Dead end", "Dead end", "out north south east west ne se sw nw up down"],
  ["Brink of pit", "You are on the brink of a thirty foot pit", ""],
  ["East end of Long Hall", "You are at the east end of a very long hall", "east west north up down"],
  ["West end of Long Hall", "You are at the west end of a very long featureless hall", "east north south"],
  ["Crossover", "You are at a crossover of a high N/S passage", "north south east west"],
  ["Complex Junction", "You are at a complex junction", "north east west up"],
  ["Bedquilt", "You are in Bedquilt", "north south east west up down"],
  ["Swiss Cheese room", "You are in a room whose walls resemble Swiss cheese", "west east ne nw"],
  ["East end of Twopit Room", "You are at the east end of the Twopit Room", "east west down"],
  ["Slab Room", "You are in a large low circular chamber", "north south up"],
  ["Canyon above large room", "You are in a secret N/S canyon above a large room", "north south down"],
  ["Canyon above passage", "You are in a secret N/S canyon above a sizable passage", "north south down"],
  ["Junction of three secret canyons", "You are in a secret canyon at a junction", "north south se"],
  ["Large low room", "You are in a large low room", "north se sw"],
  ["Secret E/W canyon above tight canyon", "You are in a secret canyon which here runs E/W", "east west down"],
  ["Wide place in tight canyon", "You are at a wide place in a very tight N/S canyon", "north south"],
  ["Canyon too tight", "The canyon here becomes too tight", "north south"],
  ["Tall E/W canyon", "You are in a tall E/W canyon", "east west north"],
  ["Mass of boulders", "The canyon runs into a mass of boulders", ""],
  ["Narrow corridor", "You are in a long, narrow corridor", "east west"],
  ["Steep incline above large room", "You are at the top of a steep incline", "down north"],
  ["Giant Room", "You are in the Giant Room", "north south east"],
  ["Recent cave-in", "The passage here is blocked by a recent cave-in", "out"],
  ["Immense N/S passage", "You are at one end of an immense north/south passage", "north south"],
  ["Cavern with waterfall", "You are in a magnificent cavern", "south west"],
  ["Soft Room", "You are in the Soft Room", ""],
  ["Oriental Room", "This is the Oriental Room", "north se west up"],
  ["Misty Cavern", "You are following a wide path around the outer edge", "south west"],
  ["Alcove", "You are in an alcove", "nw east"],
  ["Plover Room", "You're in a small chamber lit by an eerie green light", "west ne"],
  ["Dark-Room", "You're in the Dark-Room", "south"],
  ["Arched Hall", "You are in an arched hall", "up east down out"],
  ["Shell Room", "You're in a large room carved out of sedimentary rock", "up down south"],
  ["Ragged corridor", "You are in a long sloping corridor with ragged sharp walls", "up down"],
  ["Cul-de-sac", "You are in a cul-de-sac", "out up"],
  ["Anteroom", "You are in an anteroom", "east west up"],
  [
    "Maze of twisty little passages",
    "You are in a maze of twisty little passages, all different",
    "north south east west ne se sw nw up down",
  ],
  ["Witt's End", "You are at Witt's End", "north south east west ne se sw nw up down"],
  ["Mirror Canyon", "You are in a north/south canyon about 25 feet across", "north south"],
  ["Top of stalactite", "A large stalactite extends from the roof", ""],
  ["Reservoir", "You are at the edge of a large underground reservoir", "south"],
  ["NE end", "You are at the northeast end of an immense room", "sw"],
  ["SW end", "You are at the southwest end of the Repository", "ne down"],
  ["SW side of chasm", "You are on one side of a large, deep chasm", "sw over"],
  ["Sloping corridor", "You are in a long winding corridor", "up down"],
  ["Secret canyon, N and E", "You are in a secret canyon which exits to the north and east", "north east"],
  ["NE side of chasm", "You are on the far side of the chasm", "ne over"],
  ["Corridor", "You're in a long east/west corridor", "east west"],
  ["Fork in path", "The path forks here", "ne se west"],
  ["Junction with warm walls", "The walls are quite warm here", "north south east"],
  ["Breath-taking View", "You are on the edge of a breath-taking view", "south"],
  ["Chamber of Boulders", "You are in a small chamber filled with large boulders", "west"],
  ["Limestone passage", "You are walking along a gently sloping north/south passage", "north south"],
  ["In front of barren room", "You are standing at the entrance to a large, barren room", "in out east west"],
  ["Barren Room", "You are inside a barren room", "out"],
  // The maze "all different": the order of the same words is what tells its rooms apart.
  [
    "Maze of twisting little passages",
    "You are in a maze of twisting little passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Little maze of twisting passages",
    "You are in a little maze of twisting passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Little maze of twisty passages",
    "You are in a little maze of twisty passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Twisting maze of little passages",
    "You are in a twisting maze of little passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Twisting little maze of passages",
    "You are in a twisting little maze of passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Twisty little maze of passages",
    "You are in a twisty little maze of passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Twisty maze of little passages",
    "You are in a twisty maze of little passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Little twisty maze of passages",
    "You are in a little twisty maze of passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Maze of little twisting passages",
    "You are in a maze of little twisting passages, all different",
    "north south east west ne se sw nw up down",
  ],
  [
    "Maze of little twisty passages",
    "You are in a maze of little twisty passages, all different",
    "north south east west ne se sw nw up down",
  ],
];

/** "You're in Hall of Mists.": one short sentence with a preposition, and nothing else in its paragraph. */
const SHORT_DESCRIPTION =
  /^You're (?:at |in (?!front)|on |(?=(?:in front|inside|outside|below) ))(?:the )?([^.]{2,60}?)(?: again)?\.$/;

/** How an unknown place would be described: the preposition keeps "You are already carrying it!" out. */
const UNKNOWN_DESCRIPTION =
  /^You(?: are|'re) (?:standing |walking |crawling )?(?:in|at|on|inside|outside|below|above|near|under|beside) (?:the |an? )?([^.,;]{2,40})/;

/** Where the sun shines: no lamp is needed there, and a map draws them apart. */
const OUTDOORS: ReadonlySet<string> = new Set([
  "End of road",
  "Hill in road",
  "Inside building",
  "Valley",
  "Forest",
  "Slit in streambed",
  "Outside grate",
]);

/** The place when nothing can be seen. */
export const DARKNESS = "Darkness";

export function isOutdoors(room: string): boolean {
  return OUTDOORS.has(room);
}

/** The room that a paragraph describes, or undefined where it describes something else. */
export function roomOf(paragraph: string): string | undefined {
  for (const [name, beginning] of LONG_DESCRIPTIONS) {
    if (paragraph.startsWith(beginning)) return name;
  }
  const named = SHORT_DESCRIPTION.exec(paragraph)?.[1] ?? UNKNOWN_DESCRIPTION.exec(paragraph)?.[1];
  return named === undefined ? undefined : capitalised(named.replace(/"/g, ""));
}

function capitalised(name: string): string {
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** Where a player turns who was told of no way in particular. */
const ALL_WAYS = ["north", "south", "east", "west", "ne", "se", "sw", "nw", "up", "down", "in", "out"] as const;

const WAYS: ReadonlyMap<string, readonly string[]> = new Map(
  LONG_DESCRIPTIONS.filter(([, , ways]) => ways !== "").map(([name, , ways]) => [name, ways.split(" ")]),
);

/** The words of movement that a room's description suggests, in its order; all directions where it suggests none. */
export function waysFrom(room: string): readonly string[] {
  return WAYS.get(room) ?? ALL_WAYS;
}
