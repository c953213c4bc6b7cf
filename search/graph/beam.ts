import { integer, oneOf, real } from "../check-options.js";
import { TREE_DEFAULTS } from "../tree/defaults.js";
import type { Descent } from "../tree/descend.js";
import { averageBackup, mostVisits } from "../tree/rules.js";
import type { TreeState } from "../tree/state.js";
import { Kind } from "../tree/tree.js";
import type { TreeSearch } from "../tree/tree-algorithm.js";
import { createTreeSearch } from "../tree/tree-search.js";
import { resolveWay, type WayOptions } from "./best-first.js";
import { bestWay, gainOf, isDone, nextSlot, type ProposalParams, wayTo } from "./ways.js";

/** Options of `beam`. */
export interface BeamOptions extends WayOptions {
  /** States kept at each depth. Default 5. */
  readonly width?: number;
  /**
   * What a state loses for each better child of the same parent, in units of its score, so that the beam does not fill with children
   * of one state. Default 0.
   */
  readonly diversity?: number;
  /** At most so many of one parent are kept. Default: no limit. */
  readonly maxPerParent?: number;
  /** States are compared by their value, or by what was gained on the way and their value. Default `value`. */
  readonly score?: "value" | "gain-and-value";
}

interface BeamParams extends ProposalParams {
  readonly width: number;
  readonly diversity: number;
  readonly maxPerParent: number;
  readonly score: "value" | "gain-and-value";
}

interface Levels {
  /** The beam at the depth that is being searched. */
  beam: readonly number[];
}

/** Kept only to save the work: it can be found again from the tree at any time. */
const known = new WeakMap<object, Levels>();

/**
 * Beam search: of all states at one depth the best `width` are taken on, when all actions of the beam before have been tried. Ends when a
 * beam is empty; the answer is the best goal that was met.
 *
 * Sources: Lowerre (1976); diversity by rank among siblings: Li, Monroe, Jurafsky, arXiv 1611.08562; for language models that propose
 * and judge: Yao and others, "Tree of thoughts", arXiv 2305.10601.
 */
export const beam: TreeSearch<BeamOptions, BeamParams> = createTreeSearch<BeamOptions, BeamParams>({
  name: "beam",
  optionNames: ["proposalsPerNode", "width", "diversity", "maxPerParent", "score"],
  resolve: (options) => ({
    ...resolveWay(options),
    width: integer("width", options.width, TREE_DEFAULTS.beamWidth, 1_000_000),
    diversity: real("diversity", options.diversity, 0, { from: 0, to: Number.MAX_VALUE }),
    maxPerParent: integer("maxPerParent", options.maxPerParent, Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
    score: oneOf("score", options.score, "value", ["value", "gain-and-value"]),
  }),
  select: () => -1,
  choose,
  changed: (state, node) => {
    if (node === null) known.delete(state);
  },
  backup: averageBackup,
  recommend: mostVisits,
  best: bestWay,
});

function choose(state: TreeState<BeamParams>): Descent | null {
  const levels = known.get(state) ?? { beam: [state.tree.root] };
  known.set(state, levels);
  while (levels.beam.length > 0) {
    for (const node of levels.beam) {
      const slot = nextSlot(state, node);
      if (slot !== null) return wayTo(state, node, slot);
    }
    if (!levels.beam.every((node) => isDone(state, node))) return null;
    levels.beam = nextBeam(state, levels.beam);
  }
  return null;
}

/** By what was told of states when they were found: nothing of it changes later, so a restored search finds the same beams. */
function nextBeam(state: TreeState<BeamParams>, beam: readonly number[]): number[] {
  const { tree, params } = state;
  const ranked: { readonly node: number; readonly score: number }[] = [];
  for (const parent of beam) {
    const children = tree.children(parent).filter((child) => tree.kind(child) === Kind.open);
    const scored = children.map((node) => ({ node, score: scoreOf(state, node) })).sort(byScore);
    for (const [rank, { node, score }] of scored.slice(0, params.maxPerParent).entries())
      ranked.push({ node, score: score - params.diversity * rank });
  }
  return ranked
    .sort(byScore)
    .slice(0, params.width)
    .map(({ node }) => node);
}

function scoreOf(state: TreeState<BeamParams>, node: number): number {
  const value = state.tree.columns.raw.get(node);
  return state.params.score === "value" ? value : gainOf(state, node) + value;
}

/** Greatest first; of equals the one found first. */
function byScore(
  left: { readonly node: number; readonly score: number },
  right: { readonly node: number; readonly score: number },
): number {
  if (left.score !== right.score) return left.score > right.score ? -1 : 1;
  return left.node - right.node;
}
