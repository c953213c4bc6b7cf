import type { KnowledgeWeights } from "./cell-knowledge.js";

/** weight / (count + 1)^power; weight 0 leaves the term out. */
export interface CountWeight {
  readonly weight: number;
  readonly power: number;
}

/**
 * How likely a cell is chosen: the sum of its terms, divided by that of all cells. "Go-Explore's code" is
 * uber-research/go-explore, 702fb9c, `WeightedSelector`; the papers are arXiv 1901.10995 and Nature 590, 580-586 (2021).
 */
export interface CellWeights {
  /** Trajectories that came through the cell. */
  readonly seen: CountWeight;
  /** Times that the cell was started from. */
  readonly chosen: CountWeight;
  /** Steps that arrived in the cell. */
  readonly actions: CountWeight;
  /** Times started from since that last improved the archive. */
  readonly chosenSinceNew: CountWeight;
  /** scoreHigh / sqrt(rank), where rank 1 is the best of the different scores in the archive. */
  readonly scoreHigh: number;
  /** Only where it was given: what is told of cells besides their names (`Visit.knowledge`) counts as well. */
  readonly knowledge?: KnowledgeWeights;
}

/** Every default of this folder. */
export const DEFAULTS = {
  /** Go-Explore's code, `explore_steps`. Costly environments want fewer. */
  stepsPerTrial: 100,
  /** The arguments of `WeightedSelector` in Go-Explore's code. */
  weights: {
    seen: { weight: 0.1, power: 1 },
    chosen: { weight: 1, power: 1 },
    actions: { weight: 0.1, power: 0.5 },
    chosenSinceNew: { weight: 1, power: 1 },
    scoreHigh: 0,
  },
  /** The same, for what is told of cells: `DirWeights`, and `low_level_weight`. */
  knowledge: { neighbours: { horizontal: 2, vertical: 0.3 }, noLower: 0, noHigher: 0, lowLevel: 0 },
  /** Go-Explore's code, `optimize_score`: prefer score over length. */
  optimiseScore: true,
  /** Go-Explore's code, `reset_cell_on_update`. */
  resetCellOnUpdate: false,
  /** Ours: cells in flight count as chosen, so that parallel trials spread (the idea of WU-UCT's unobserved samples). */
  countInFlight: true,
  /** Ours: on the way back by a policy, every second step may be one too many. */
  returnPatience: 2,
  /** Ours: a trial knows the outcomes of all but the 7 before it, which keeps 8 workers busy. */
  window: 8,
  /** Ours: one retry tells bad luck from a fault that stays, a second one guards against bad luck twice. */
  maxAttempts: 3,
  /** Ours: what a machine of this kind can hold in memory (about 150 bytes a node). */
  maxNodes: 1_000_000,
  /** Ours: a path of that many steps takes too long to replay. */
  maxLength: 1_000_000,
  /** Ours: no limit; the caller's budget ends the search. */
  maxSteps: Number.MAX_SAFE_INTEGER,
  maxTrials: Number.MAX_SAFE_INTEGER,
  /** Ours: cells, actions and landmarks come from a guest, and must not fill the memory. UTF-16 code units. */
  maxKeyLength: 4_096,
  /** Go-Explore's code repeats each action 20 times on average: for video frames. Text and tools want no repeats. */
  meanRepeat: 1,
} as const;

/** What the paper's scripts for Atari without domain knowledge pass instead: seen only, w = 1, p = .5. */
export const PAPER_ATARI = {
  stepsPerTrial: 100,
  weights: {
    seen: { weight: 1, power: 0.5 },
    chosen: { weight: 0, power: 1 },
    actions: { weight: 0, power: 1 },
    chosenSinceNew: { weight: 0, power: 1 },
    scoreHigh: 0,
  },
  resetCellOnUpdate: true,
} as const;

/** What their script for Montezuma's Revenge with domain knowledge passes on top. */
export const PAPER_MONTEZUMA = {
  ...PAPER_ATARI,
  weights: {
    ...PAPER_ATARI.weights,
    knowledge: { neighbours: { horizontal: 0.1, vertical: 0 }, noLower: 0, noHigher: 1, lowLevel: 0.1 },
  },
} as const;
