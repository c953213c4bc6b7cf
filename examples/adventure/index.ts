/** What `coppice demo` shows: the environment, and how to present what a search found in it. */

import type { VisitReport } from "../../index.js";
import { adventure } from "./adventure.js";
import { drawMap as drawCaveMap } from "./draw.js";
import { buildMap, type MapVisit } from "./map.js";
import type { AdventureObservation } from "./observation.js";

export default adventure;

export const title = "Colossal Cave Adventure";

/** A step of the best trajectory, as a run's result names it. */
export interface BestStep {
  readonly trial: number;
  readonly index: number;
}

/** The discovered map as an SVG document; the passages of the best trajectory are marked. */
export function drawMap(visits: readonly VisitReport[], best: readonly BestStep[] = []): string {
  const marked = new Set(best.map(({ trial, index }) => `${trial}.${index}`));
  const steps = visits.flatMap((visit): MapVisit[] => {
    const { from, landmarks, action, order, trial, step } = visit;
    const [start, end] = [from["room"], landmarks["room"]];
    if (start === undefined || end === undefined) return [];
    return [{ from: start, action, to: end, step: order, best: marked.has(`${trial}.${step}`) }];
  });
  return drawCaveMap(buildMap(steps, steps[0]?.from ?? "End of road"));
}

/** For a reader: in the first line where the player is and what he has, which a reply alone need not tell; then the reply. */
export function situation(observation: unknown): string {
  const { text, room, light, carrying, achieved } = observation as AdventureObservation;
  const place = light === "dark" ? [room, "in the dark"] : [room];
  const hands = carrying.length === 0 ? [] : [`carrying ${carrying.join(", ")}`];
  return `${[...place, ...hands, ...achieved].join("; ")}\n${text}`;
}
