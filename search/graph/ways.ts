import { PROPOSE } from "../tree/choices.js";
import type { Descent } from "../tree/descend.js";
import type { TreeState } from "../tree/state.js";
import { Kind, NONE, type Tree } from "../tree/tree.js";

/** What searches for a way to a goal have in common. Rewards add up along the way; a goal is a state in which the environment ends. */

/** How many actions each state proposes, where `proposals` is on. */
export interface ProposalParams {
  readonly proposalsPerNode: number;
}

/** Sum of rewards from the root. */
export function gainOf({ tree }: TreeState, node: number): number {
  let gain = 0;
  for (let at = node; at !== tree.root; at = tree.columns.parent.get(at)) gain += tree.columns.reward.get(at);
  return gain;
}

/** The next action to be tried at a state, by prior and then in the order of the list; null if there is none. */
export function nextSlot(state: TreeState<ProposalParams>, node: number): number | null {
  const { tree, config, params } = state;
  if (tree.kind(node) !== Kind.open || childrenLeft(state, node) <= 0) return null;
  if (tree.columns.depth.get(node) - tree.columns.depth.get(tree.root) >= config.maxDepth) return null;
  const list = tree.actions(node) ?? [];
  const priors = tree.priors(node);
  const tried = triedSlots(tree, node);
  let best: number | null = null;
  for (let slot = 0; slot < list.length; slot += 1) {
    if (tried.has(slot)) continue;
    if (best === null || (priors !== null && (priors[slot] as number) > (priors[best] as number))) best = slot;
  }
  if (best !== null || !config.proposals) return best;
  return proposed(tree, node) < params.proposalsPerNode ? PROPOSE : null;
}

/** Whether all that will be tried at a state has been, and is known. */
export function isDone(state: TreeState<ProposalParams>, node: number): boolean {
  if (nextSlot(state, node) !== null) return false;
  return state.tree.findChild(node, (child) => state.tree.kind(child) === Kind.pending) === NONE;
}

/** The way from the root to a state, ending in an action to try there. */
export function wayTo({ tree }: TreeState, node: number, slot: number): Descent {
  const path: number[] = [];
  for (let at = node; at !== NONE; at = tree.columns.parent.get(at)) path.push(at);
  path.reverse();
  const rewards = path.map((at, index) => (index === 0 ? 0 : tree.columns.reward.get(at)));
  return { kind: "action", line: { path, rewards }, child: NONE, slot };
}

/** The goal with the greatest gain, then found first; without a goal the state with the greatest gain and value. */
export function bestWay(state: TreeState): number {
  const { tree } = state;
  let best = tree.root;
  let isGoal = false;
  let most = Number.NEGATIVE_INFINITY;
  for (let node = 0; node < tree.size; node += 1) {
    const kind = tree.kind(node);
    if (kind !== Kind.terminal && (kind !== Kind.open || isGoal)) continue;
    const worth = gainOf(state, node) + (kind === Kind.terminal ? 0 : tree.columns.raw.get(node));
    if (kind === Kind.terminal && !isGoal) most = Number.NEGATIVE_INFINITY;
    isGoal ||= kind === Kind.terminal;
    if (worth > most || best === NONE) {
      most = worth;
      best = node;
    }
  }
  return best;
}

function childrenLeft({ tree, config }: TreeState, node: number): number {
  return config.maxWidth - tree.columns.childCount.get(node);
}

function triedSlots(tree: Tree, node: number): Set<number> {
  return new Set(tree.children(node).map((child) => tree.columns.slot.get(child)));
}

function proposed(tree: Tree, node: number): number {
  const listed = tree.actions(node)?.length ?? 0;
  return tree.children(node).filter((child) => tree.columns.slot.get(child) >= listed).length;
}
