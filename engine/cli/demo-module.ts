/** What the demonstration needs of an example: an environment, and how to show it. */

import { environmentModuleInvalid, reasonOf } from "../errors.js";
import type { Json } from "../json.js";
import type { VisitReport } from "../run/progress.js";
import type { TrajectoryStep } from "../scheduler/node-table.js";

export interface DemoModule {
  /** In the heading. */
  readonly title: string;
  /** The discovered map as an SVG document; `best` names the steps of the best trajectory. */
  readonly drawMap: (
    visits: readonly VisitReport[],
    best: readonly Pick<TrajectoryStep, "trial" | "index">[],
  ) => string;
  /** What a reader would want to see of an observation, in a few lines. */
  readonly situation: (observation: Json) => string;
}

/** The example is an ordinary user of the library: it is found by path, and nothing here knows more of it. */
export const DEMO_MODULE = new URL("../../examples/adventure/index.js", import.meta.url);

export async function loadDemoModule(url: URL): Promise<DemoModule> {
  let module: Partial<DemoModule>;
  try {
    module = (await import(url.href)) as Partial<DemoModule>;
  } catch (error) {
    const remedy = "Run `npm run build`, or start it with `npm run demo`.";
    throw environmentModuleInvalid(url.href, `can not be imported: ${reasonOf(error)}`, remedy, error);
  }
  const { title, drawMap, situation } = module;
  if (typeof title !== "string" || typeof drawMap !== "function" || typeof situation !== "function") {
    const remedy = "Export title, drawMap(visits) and situation(observation) beside the environment.";
    throw environmentModuleInvalid(url.href, "can not be shown", remedy);
  }
  return { title, drawMap, situation };
}
