/** Every default of the tree searches, with its source. */
export const TREE_DEFAULTS = {
  /** None: episodes end, and what is wanted is the sum of rewards. MuZero has .997. */
  discount: 1,
  /** With proposals only. Couetoux and others, "Continuous upper confidence trees" (2011), use alpha .5 for actions. */
  widening: { k: 1, alpha: 0.5 },
  /** Liu and others, "Watch the unobserved" (WU-UCT), arXiv 1810.11755. */
  inFlight: "count",
  /** Chaslot and others, "Parallel Monte-Carlo tree search" (2008): one lost playout a thread. */
  virtualLoss: 1,
  /** Ours: as for archives. */
  window: 8,
  maxAttempts: 3,
  /** Ours: 175 MB, and up to twice that while storage grows. */
  maxNodes: 1_000_000,
  /** Ours: far beyond what can be replayed, and safe for a walk up the tree. */
  maxDepth: 10_000,
  maxWidth: 100_000,
  /** Ours: no limit; the caller's budget ends the search. */
  maxSimulations: Number.MAX_SAFE_INTEGER,
  maxTrials: Number.MAX_SAFE_INTEGER,
  /** UCB1: Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the multiarmed bandit problem" (2002); returns in [0, 1]. */
  exploration: Math.SQRT2,
  /** AlphaZero, Silver and others, Science 362 (2018), supplementary pseudocode; MuZero has the same. */
  puct: { init: 1.25, base: 19_652 },
  /** mctx, and AlphaZero for chess; AlphaZero has alpha .15 for shogi and .03 for Go, MuZero .25 for Atari. */
  noise: { alpha: 0.3, fraction: 0.25 },
  /** Gumbel MuZero: Danihelka and others, ICLR 2022; the defaults of mctx. */
  gumbel: { considered: 16, visitInit: 50, valueScale: 0.1, scale: 1 },
  /** AB-MCTS-A: the defaults of TreeQuest, the code of Inoue and others, arXiv 2503.04412; for shares of success Jeffreys' prior. */
  abMcts: { mean: 0, kappa: 1, nu: 1, variance: 0.1, alpha: 0.5, beta: 0.5 },
  /** LATS: Zhou and others, arXiv 2310.04406, for HotPotQA: 5 children, exploration 1. How many reflections fit into a prompt is ours. */
  lats: { children: 5, exploration: 1, maxNotes: 3 },
  /** Ours, for searches for a way: what the tree of thoughts of Yao and others, arXiv 2305.10601, proposes at a state. */
  proposalsPerNode: 5,
  /** The same: states kept at each depth. */
  beamWidth: 5,
} as const;

/**
 * Simulations in a row that end in a state which needs no environment; then one that does is chosen, wherever it can be. Without this, a search
 * that has found a good end prefers it for exponentially long. Ours: free compared with a step, and not noticed in an `ask`.
 */
export const MOST_KNOWN_IN_A_ROW = 1_000;
/** The same where nothing that needs the environment can be chosen before more visits allow it (widening). Then the search is over. */
export const MOST_KNOWN_WITHOUT_CHOICE = 10_000;
