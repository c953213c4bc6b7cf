import { ROOT_CELL, ROOT_NODE } from "./archive.js";
import { type ArchiveSearch, createArchiveSearch } from "./archive-search.js";
import type { ArchiveState, Start } from "./archive-state.js";
import {
  type BestOfNOptions,
  type IndependentRetryOptions,
  type RandomBranchOptions,
  resolveBestOfN,
  resolveIndependentRetry,
  resolveRandomBranch,
} from "./config.js";
import { drawUniform } from "./draws.js";

const ROOT: Start = { cell: ROOT_CELL, node: ROOT_NODE };

/** Whether a state as good as was wanted has been found. */
export function isSolved({ archive, config }: ArchiveState): boolean {
  return config.target !== undefined && archive.nodes.score.get(archive.best) >= config.target;
}

/**
 * A fixed number of rollouts from the root, independent of each other; the best counts. With a policy that is any good this is what a
 * search has to beat at an equal number of steps.
 */
export const bestOfN: ArchiveSearch<BestOfNOptions> = createArchiveSearch(
  { name: "best-of-n", needsCheckpoint: false, choose: () => ROOT },
  resolveBestOfN,
);

/** Rollouts from the root until one reaches the target. With `window: 1` one after the other. */
export const independentRetry: ArchiveSearch<IndependentRetryOptions> = createArchiveSearch(
  { name: "independent-retry", needsCheckpoint: false, choose: (state) => (isSolved(state) ? null : ROOT) },
  resolveIndependentRetry,
);

/**
 * Each rollout goes on from a cell drawn uniformly from all that were reached, the root included: what returning to states is worth
 * without any idea which. Stops at the target.
 */
export const randomBranch: ArchiveSearch<RandomBranchOptions> = createArchiveSearch(
  {
    name: "random-branch",
    needsCheckpoint: true,
    choose: (state, trial) => {
      if (isSolved(state)) return null;
      const cell = state.archive.choose(drawUniform(state.seed, "choose", trial));
      return cell < 0 ? null : { cell, node: state.archive.cells.node.get(cell) };
    },
  },
  resolveRandomBranch,
);
