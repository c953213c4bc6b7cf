/** The map that a set of steps discovered: rooms, and the passages between them with the words that lead through. */

import { isOutdoors } from "./rooms.js";

/** One step that began and ended in a known place. */
export interface MapVisit {
  readonly from: string;
  readonly action: string;
  readonly to: string;
  /** Steps of the search before this one. */
  readonly step: number;
  /** Whether it is part of the best trajectory. */
  readonly best?: boolean;
}

export interface MapRoom {
  readonly name: string;
  /** The step that discovered it; 0 for the start. */
  readonly found: number;
  readonly outdoors: boolean;
}

/** Between two different rooms, one entry whatever the number of ways. */
export interface MapPassage {
  /** The one that was found first. */
  readonly a: string;
  readonly b: string;
  /** Words that were seen to lead from a to b, in the order of discovery. */
  readonly there: readonly string[];
  readonly back: readonly string[];
  /** By magic words only. */
  readonly magic: boolean;
  readonly best: boolean;
}

export interface CaveMap {
  readonly start: string;
  /** Where the best trajectory ends, if it is known. */
  readonly end: string | undefined;
  /** In the order of discovery, the start first. */
  readonly rooms: readonly MapRoom[];
  readonly passages: readonly MapPassage[];
  /** Steps that it took. */
  readonly steps: number;
}

const MAGIC: ReadonlySet<string> = new Set(["xyzzy", "plugh", "plover"]);

/** What moves a player without being a way from here to there: retracing, and deeds that move the scenery. */
const NOT_A_WAY = /^(?:back|on|off|yes|look)$|^(?:take|drop|throw|pour|kill|feed|wave|unlock) /;

interface Draft {
  readonly a: string;
  readonly b: string;
  readonly there: Set<string>;
  readonly back: Set<string>;
  best: boolean;
}

/** `visits` in any order; the map depends on their steps alone. */
export function buildMap(visits: readonly MapVisit[], start: string): CaveMap {
  const ordered = [...visits].sort((left, right) => left.step - right.step);
  const rooms = new Map<string, MapRoom>([[start, { name: start, found: 0, outdoors: isOutdoors(start) }]]);
  const drafts = new Map<string, Draft>();
  for (const { from, action, to, step, best = false } of ordered) {
    for (const name of [from, to]) {
      if (!rooms.has(name)) rooms.set(name, { name, found: step, outdoors: isOutdoors(name) });
    }
    if (from === to || NOT_A_WAY.test(action)) continue;
    const draft = draftBetween(drafts, from, to);
    (draft.a === from ? draft.there : draft.back).add(action);
    draft.best ||= best;
  }
  return {
    start,
    end: ordered.findLast(({ best }) => best === true)?.to,
    rooms: [...rooms.values()],
    passages: [...drafts.values()].map(finished),
    steps: ordered.length,
  };
}

function draftBetween(drafts: Map<string, Draft>, from: string, to: string): Draft {
  const key = [from, to].sort().join("\n");
  const known = drafts.get(key);
  if (known !== undefined) return known;
  const draft: Draft = { a: from, b: to, there: new Set(), back: new Set(), best: false };
  drafts.set(key, draft);
  return draft;
}

function finished({ a, b, there, back, best }: Draft): MapPassage {
  const words = [...there, ...back];
  return { a, b, there: [...there], back: [...back], magic: words.every((word) => MAGIC.has(word)), best };
}
