import { ROOT_CELL, ROOT_NODE } from "./archive.js";
import { type ArchiveSearch, createArchiveSearch } from "./archive-search.js";
import { type RandomRolloutsOptions, resolveRandomRollouts } from "./config.js";

/**
 * The control that every search has to beat: each trial starts from the root and walks at random for `stepsPerTrial` steps.
 * Cells, scores and paths are recorded as by Go-Explore, but need no checkpoints, and nothing is chosen by them.
 */
export const randomRollouts: ArchiveSearch<RandomRolloutsOptions> = createArchiveSearch(
  {
    name: "random-rollouts",
    needsCheckpoint: false,
    choose: () => ({ cell: ROOT_CELL, node: ROOT_NODE }),
  },
  resolveRandomRollouts,
);
