/** What a player would call a situation, as one string: place | things carried | light | what was achieved. */

import type { AdventureObservation } from "./observation.js";
import { isOutdoors } from "./rooms.js";

/** Above ground, where it makes a difference what one carries; between them one only walks. */
const OUTDOOR_GOALS: ReadonlySet<string> = new Set(["Inside building", "Outside grate"]);

/** Nothing above ground has a use for these. */
const PROVISIONS = /^(?:bottle|food|magazine|pillow)/;

/**
 * Above ground a search could collect hundreds of situations that no player would tell apart: every set of things in every
 * corner of the forest. There, things count only at the building and the grate, and provisions not at all.
 */
function carriedThatMatters({ room, carrying }: AdventureObservation): readonly string[] {
  if (!isOutdoors(room)) return carrying;
  return OUTDOOR_GOALS.has(room) ? carrying.filter((name) => !PROVISIONS.test(name)) : [];
}

export function cellOf(observation: AdventureObservation): string {
  if (observation.over) return "over";
  const { room, light, achieved } = observation;
  const things = carriedThatMatters(observation).join(", ");
  return `${room} | ${things || "nothing"} | ${light} | ${achieved.join(", ") || "nothing yet"}`;
}
