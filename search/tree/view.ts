import type { NodeView, PathStep } from "../algorithm.js";
import { Choices } from "./choices.js";
import { fillChoices } from "./fill-choices.js";
import type { TreePolicy } from "./policy.js";
import type { TreeState } from "./state.js";
import { Flag, Kind, NONE } from "./tree.js";
import { isClosed, stateValue, stepReturn } from "./value.js";

/** What is known of one action of the root. */
export interface ActionStatistics {
  readonly action: string;
  /** The node that it leads to; null while nothing is known. In stochastic searches the node that its outcomes hang on. */
  readonly node: number | null;
  /** Simulations, merged. */
  readonly visits: number;
  readonly inFlight: number;
  /** Return of the action for player 0: reward and discounted value; null without visits. */
  readonly return: number | null;
  /** null where no priors were given. */
  readonly prior: number | null;
  /** Share of the action in what the algorithm recommends; they add up to 1, or are all 0 before the first visit. */
  readonly probability: number;
  /** `return` is exact: nothing more can be learned of the action. */
  readonly proven: boolean;
}

type Recommend<Params> = Pick<TreePolicy<never, Params>, "recommend" | "best">;

/** Of all actions of the root that have a name, in the order of the action list. */
export function rootStatistics<Params>(policy: Recommend<Params>, state: TreeState<Params>): ActionStatistics[] {
  const { tree } = state;
  const choices = rootChoices(state);
  const { probabilities } = policy.recommend(state, choices);
  const priors = tree.priors(tree.root);
  const list = tree.actions(tree.root) ?? [];
  const statistics: ActionStatistics[] = [];
  for (let index = 0; index < choices.count; index += 1) {
    const child = choices.child[index] as number;
    const slot = choices.slot[index] as number;
    const action = child === NONE ? list[slot] : tree.label(child);
    if (action === undefined || action === null) continue;
    const visits = choices.visits[index] as number;
    statistics.push({
      action,
      node: child === NONE || tree.kind(child) === Kind.pending ? null : child,
      visits,
      inFlight: child === NONE ? 0 : tree.columns.inFlight.get(child),
      return: visits > 0 ? stepReturn(state, child) : null,
      prior: priors?.[slot] ?? null,
      probability: probabilities[index] ?? 0,
      proven: child !== NONE && isClosed(state, child),
    });
  }
  return statistics;
}

/** The node to answer with: as a rule a child of the root, the root if no action has been tried. */
export function bestChild<Params>(policy: Recommend<Params>, state: TreeState<Params>): number {
  if (policy.best) return policy.best(state);
  const { tree } = state;
  const choices = rootChoices(state);
  const { score } = policy.recommend(state, choices);
  const isExhausted = tree.has(tree.root, Flag.closed);
  let best = -1;
  for (let index = 0; index < choices.count; index += 1) {
    if ((choices.visits[index] as number) === 0) continue;
    if (best < 0 || compare(state, choices, { index, best, score, isExhausted }) > 0) best = index;
  }
  return best < 0 ? tree.root : (choices.child[best] as number);
}

interface Comparison {
  readonly index: number;
  readonly best: number;
  readonly score: (index: number) => number;
  readonly isExhausted: boolean;
}

/** Above 0 if the choice at `index` is better. */
function compare(state: TreeState, choices: Choices, { index, best, score, isExhausted }: Comparison): number {
  const returns = answerReturn(state, choices, index) - answerReturn(state, choices, best);
  // Where all is known, or one of both is proven to be best or worst possible, the return alone decides.
  if (isExhausted || (state.config.solver && (isDecided(state, choices, index) || isDecided(state, choices, best))))
    return returns;
  return score(index) - score(best) || returns;
}

/** A return that is exact and as good or as bad as can be. */
function isDecided({ config, tree, ...state }: TreeState, choices: Choices, index: number): boolean {
  const child = choices.child[index] as number;
  if (config.range === "observed" || !isClosed({ config, tree, ...state }, child)) return false;
  const q = tree.sign(choices.node) * (choices.q[index] as number);
  return q >= config.range[1] || q <= config.range[0];
}

/** For the player to move; exact where it can be. */
function answerReturn(state: TreeState, choices: Choices, index: number): number {
  const { tree, config } = state;
  const child = choices.child[index] as number;
  if (config.stochastic || !isClosed(state, child)) return choices.q[index] as number;
  const exact = tree.columns.reward.get(child) + config.discount * tree.columns.bound.get(tree.state(child));
  return tree.sign(choices.node) * exact;
}

function rootChoices(state: TreeState): Choices {
  const choices = new Choices();
  fillChoices(choices, state, state.tree.root, { mayExpand: true, avoid: new Set() });
  return choices;
}

/** A node as callers see it; of a link, the state that it leads to. */
export function viewNode(state: TreeState, node: number): NodeView {
  const { tree } = state;
  const { columns } = tree;
  const parent = columns.parent.get(node);
  const trial = columns.trial.get(node);
  let reward = state.rootReward;
  for (let at = node; at !== tree.root; at = columns.parent.get(at)) reward += columns.reward.get(at);
  return {
    node,
    parent: parent === NONE ? null : parent,
    cell: tree.key(tree.state(node)),
    score: stateValue(state, tree.state(node)),
    reward,
    length: columns.depth.get(node),
    trial: trial === NONE ? null : trial,
    checkpoint: tree.checkpoint(tree.state(node)),
  };
}

/** From the root's child to the node. Nodes that stand for no action of their own (outcomes) go with the action above them. */
export function nodePath({ tree }: TreeState, node: number): PathStep[] {
  const steps: PathStep[] = [];
  let arrived = tree.state(node);
  for (let at = node; at !== tree.root; at = tree.columns.parent.get(at)) {
    const action = tree.label(at);
    if (action === null) continue;
    steps.push({ action, node: arrived });
    arrived = tree.columns.parent.get(at);
  }
  return steps.reverse();
}
