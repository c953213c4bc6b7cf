import { ROOT_NODE } from "./archive.js";
import { type ArchiveSearch, createArchiveSearch } from "./archive-search.js";
import { type GoExploreOptions, resolveGoExplore } from "./config.js";
import { drawUniform } from "./draws.js";

/**
 * Go-Explore, phase 1: an archive with one state a cell; each trial starts from a cell chosen by weight, walks on at random,
 * and what it finds that is new or better is kept.
 *
 * Source: Ecoffet and others, arXiv 1901.10995 and Nature 590, 580-586 (2021); details as in their code, see
 * `docs/search/go-explore.md`.
 */
export const goExplore: ArchiveSearch<GoExploreOptions> = createArchiveSearch(
  {
    name: "go-explore",
    needsCheckpoint: true,
    choose: ({ archive, config, seed }, trial) => {
      const cell = archive.choose(drawUniform(seed, "choose", trial));
      if (cell < 0) return null;
      const node = archive.cells.node.get(cell);
      return config.policyReturn === undefined ? { cell, node } : { cell, node: ROOT_NODE, goal: node };
    },
  },
  resolveGoExplore,
);
