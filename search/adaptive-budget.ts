import { ROOT_CELL, ROOT_NODE } from "./archive.js";
import { type ArchiveSearch, createArchiveSearch } from "./archive-search.js";
import type { ArchiveState, Start } from "./archive-state.js";
import { isSolved } from "./baselines.js";
import { type AdaptiveBudgetOptions, resolveAdaptiveBudget } from "./config.js";
import { drawUniform } from "./draws.js";
import { betaVariate, draws } from "./gamma.js";

/** One way to spend the next trial. */
export interface BudgetArm {
  /** Merged trials that started so; lost ones do not count. */
  readonly trials: number;
  /** Of these, how many found a state with a greater score than any before. */
  readonly improvements: number;
}

/**
 * Decides trial by trial whether to begin again at the root or to go on from the archive: Thompson sampling on how often either has
 * raised the best score. Going on is Go-Explore's choice of a cell. Stops at the target; `path` of `best` is what led there.
 *
 * One study found that going back to states is behind plain retries on most tasks, and far ahead on some: so neither is taken for
 * granted. Source of the rule: Thompson (1933); Beta-Bernoulli as in Chapelle and Li (2011).
 */
export const adaptiveBudget: ArchiveSearch<AdaptiveBudgetOptions> = createArchiveSearch(
  {
    name: "adaptive-budget",
    needsCheckpoint: true,
    choose: (state, trial) => {
      if (isSolved(state)) return null;
      const { retry, goOn } = armsOf(state);
      const again = sample(state, retry, ["retry", trial]);
      const further = sample(state, goOn, ["go on", trial]);
      return again > further ? ROOT : chooseCell(state, trial);
    },
  },
  resolveAdaptiveBudget,
);

const ROOT: Start = { cell: ROOT_CELL, node: ROOT_NODE };

/** What was learned of both ways. A trial from the root's cell counts as a retry only while the root itself represents that cell. */
export function armsOf(state: ArchiveState): { readonly retry: BudgetArm; readonly goOn: BudgetArm } {
  const { retries, others } = improvementsOf(state);
  const { chosen } = state.archive.cells;
  let all = 0;
  for (let cell = 0; cell < state.archive.cellCount; cell += 1) all += chosen.get(cell);
  const fromRoot = chosen.get(ROOT_CELL);
  return {
    retry: { trials: Math.max(fromRoot, retries), improvements: retries },
    goOn: { trials: Math.max(all - fromRoot, others), improvements: others },
  };
}

/**
 * Found again from the nodes: they stand in the order of the trials that found them, and the first of a trial hangs on the node that the
 * trial started from.
 */
function improvementsOf({ archive }: ArchiveState): { readonly retries: number; readonly others: number } {
  const { score, trial, parent } = archive.nodes;
  let retries = 0;
  let others = 0;
  let best = score.get(ROOT_NODE);
  let counted = -1;
  let start = ROOT_NODE;
  for (let node = ROOT_NODE + 1; node < archive.nodeCount; node += 1) {
    if (trial.get(node) !== trial.get(node - 1)) start = parent.get(node);
    if (score.get(node) <= best) continue;
    best = score.get(node);
    if (trial.get(node) === counted) continue;
    counted = trial.get(node);
    if (start === ROOT_NODE) retries += 1;
    else others += 1;
  }
  return { retries, others };
}

function sample({ seed }: ArchiveState, { trials, improvements }: BudgetArm, names: readonly [string, number]): number {
  return betaVariate(1 + improvements, 1 + trials - improvements, draws(seed, ...names));
}

function chooseCell({ archive, seed }: ArchiveState, trial: number): Start | null {
  const cell = archive.choose(drawUniform(seed, "choose", trial));
  return cell < 0 ? null : { cell, node: archive.cells.node.get(cell) };
}
