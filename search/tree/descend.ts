import { drawUniform } from "../draws.js";
import { Choices, PROPOSE } from "./choices.js";
import { fillChoices } from "./fill-choices.js";
import type { TreePolicy } from "./policy.js";
import { allowedChildren, widen } from "./rules.js";
import type { Line, TreeState } from "./state.js";
import { Flag, Kind, NONE } from "./tree.js";
import { isClosed } from "./value.js";

/**
 * - `action`: an action that has to be taken from the last node of the line: `child` is its row, if it has one already.
 * - `known`: the line ends in a state that needs no environment.
 */
export type Descent =
  | { readonly kind: "action"; readonly line: Line; readonly child: number; readonly slot: number }
  | { readonly kind: "known"; readonly line: Line };

/** What a descent has to come to. */
export interface Demand {
  /** Only an action that has to be taken will do. */
  readonly mustAct: boolean;
  /** Nodes that it backs up from before it gives up: without a limit it might look at all ends of a large tree. */
  readonly mostAvoided: number;
}

export const ANY: Demand = { mustAct: false, mostAvoided: 1_000 };
export const ACTION_SOON: Demand = { mustAct: true, mostAvoided: 1_000 };
export const ACTION_ANYWHERE: Demand = { mustAct: true, mostAvoided: Number.POSITIVE_INFINITY };

// Scratch that outlives a call only to save allocations.
const choices = new Choices();
const NOTHING: ReadonlySet<number> = new Set();

type Policy<Params> = Pick<TreePolicy<never, Params>, "select" | "expand">;

/**
 * Follows the policy down from the end of a line. null if nothing can be chosen now. Changes nothing.
 *
 * A simulation that needs no environment takes no time. It is not made where the policy could not choose freely because something was
 * under way: ended states would be visited again and again, only to fill the time until a result comes in.
 */
export function descend<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  from: Line,
  { mustAct, mostAvoided }: Demand,
): Descent | null {
  const path = [...from.path];
  const rewards = [...from.rewards];
  const line: Line = { path, rewards };
  let avoid: Set<number> | null = null;
  let isHeldUp = mustAct;
  for (;;) {
    const node = path[path.length - 1] as number;
    const step = isLeaf(state, line) ? "known" : chooseStep(policy, state, node, avoid ?? NOTHING);
    isHeldUp ||= choices.isHeldUp && step !== "known" && !state.tree.has(node, Flag.chance);
    if (step === "sample") {
      path.pop();
      rewards.pop();
      return { kind: "action", line, child: node, slot: state.tree.columns.slot.get(node) };
    }
    const isKnown = step === "known" || (step === "leaf" && path.length > 1);
    if (isKnown && !isHeldUp) return { kind: "known", line };
    if (isKnown || step === "leaf" || step === "wait") {
      avoid ??= new Set();
      if (path.length <= from.path.length || avoid.size >= mostAvoided) return null;
      // Back up, and never down here again in this descent.
      avoid.add(node);
      path.pop();
      rewards.pop();
      // A link was followed together with its target.
      const above = path[path.length - 1] as number;
      if (state.tree.kind(above) === Kind.link) {
        avoid.add(above);
        path.pop();
        rewards.pop();
      }
      continue;
    }
    if (typeof step !== "number") return { kind: "action", line, child: NONE, slot: step.slot };
    push(state, line, path, rewards, step);
  }
}

type Step = number | { readonly slot: number } | "sample" | "leaf" | "wait";

function chooseStep<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  node: number,
  avoid: ReadonlySet<number>,
): Step {
  return state.tree.has(node, Flag.chance) ? chooseOutcome(state, node) : chooseAction(policy, state, node, avoid);
}

function push(state: TreeState, line: Line, path: number[], rewards: number[], child: number): void {
  path.push(child);
  rewards.push(state.tree.columns.reward.get(child));
  if (state.tree.kind(child) !== Kind.link) return;
  const target = state.tree.columns.target.get(child);
  // A cycle: the line ends at the link, which is worth what its state is worth.
  if (line.path.includes(target)) return;
  path.push(target);
  rewards.push(0);
}

function isLeaf(state: TreeState, { path }: Line): boolean {
  const { tree, config } = state;
  const node = path[path.length - 1] as number;
  const kind = tree.kind(node);
  if (kind === Kind.terminal || kind === Kind.link) return true;
  if (path.length > 1 && config.solver && isClosed(state, node)) return true;
  // Only links lead to states deeper than their path is long.
  if (path.length <= config.maxDepth && !config.transpositions) return false;
  const depth = tree.columns.depth.get(node) - tree.columns.depth.get(tree.root);
  return depth >= config.maxDepth && !tree.has(node, Flag.chance);
}

/** A child, or a slot whose action is untried, or why there is neither. */
function chooseAction<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  node: number,
  avoid: ReadonlySet<number>,
): number | { readonly slot: number } | "leaf" | "wait" {
  const mayExpand = (policy.expand ?? widen)(state, node);
  fillChoices(choices, state, node, { mayExpand, avoid });
  const index = choices.free === 0 ? -1 : policy.select(state, choices);
  if (index < 0) return choices.free === 0 && !choices.isWaiting && !choices.isHeldUp ? "leaf" : "wait";
  if (index >= choices.count || choices.blocked[index] === 1) throw new Error("A policy selected what it must not");
  const child = choices.child[index] as number;
  return child === NONE ? { slot: choices.slot[index] as number } : child;
}

/** One of the outcomes that are known, as often as they came up; or a new sample where widening allows one, or has no limit. */
function chooseOutcome({ tree, config, seed }: TreeState, node: number): number | "sample" {
  const { visits, inFlight, childCount, firstChild, nextSibling } = tree.columns;
  const through = visits.get(node) + inFlight.get(node);
  const limit =
    config.outcomeWidening === null ? Number.POSITIVE_INFINITY : allowedChildren(config.outcomeWidening, through);
  const children = childCount.get(node);
  if (children === 0 || children < limit) return "sample";
  let total = 0;
  for (let child = firstChild.get(node); child !== NONE; child = nextSibling.get(child)) total += visits.get(child);
  let rest = drawUniform(seed, "outcome", node, through) * total;
  for (let child = firstChild.get(node); child !== NONE; child = nextSibling.get(child)) {
    rest -= visits.get(child);
    if (rest < 0) return child;
  }
  return tree.columns.lastChild.get(node);
}

/** The action of a slot: null where it is to be proposed. */
export function actionOf({ tree }: TreeState, node: number, slot: number): string | null {
  return slot === PROPOSE ? null : (tree.actions(node)?.[slot] ?? null);
}
