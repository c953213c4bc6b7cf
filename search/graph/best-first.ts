import { integer, real } from "../check-options.js";
import { invalidArgument } from "../errors.js";
import type { TreeConfig, TreeOptions } from "../tree/config.js";
import { TREE_DEFAULTS } from "../tree/defaults.js";
import type { Descent } from "../tree/descend.js";
import type { TreePolicy } from "../tree/policy.js";
import { averageBackup, mostVisits } from "../tree/rules.js";
import type { TreeState } from "../tree/state.js";
import { Kind } from "../tree/tree.js";
import type { TreeSearch } from "../tree/tree-algorithm.js";
import { createTreeSearch } from "../tree/tree-search.js";
import { Heap } from "./heap.js";
import { swapPlaces } from "./swap-places.js";
import { bestWay, gainOf, nextSlot, type ProposalParams, wayTo } from "./ways.js";

/** Options of all searches for a way. Refused: two players, chance, discount, widening, proofs. */
export interface WayOptions extends Omit<TreeOptions, keyof Unfit> {
  /** Actions to propose at each state, where `proposals` is on. Default 5. */
  readonly proposalsPerNode?: number;
}

type Unfit = Pick<TreeOptions, "players" | "stochastic" | "discount" | "widening" | "outcomeWidening" | "solver">;

/** Options of `aStar`. */
export interface AStarOptions extends WayOptions {
  /** Factor of the estimate, from 0: above 1 finds sooner, and at worst so many times as costly a way. Default 1. */
  readonly weight?: number;
}

/** Options of `iterativeDeepening`. */
export interface DeepeningOptions extends WayOptions {
  /** Decisions that each round goes further than the one before. Default 1. */
  readonly step?: number;
}

interface OrderParams extends ProposalParams {
  readonly weight: number;
  readonly step: number;
}

/** Which state is taken on next: greatest first; compared number by number, and of equals the one found first. */
type Order = (state: TreeState<OrderParams>, node: number) => readonly number[];

interface Entry {
  readonly node: number;
  readonly key: readonly number[];
}

const frontiers = new WeakMap<object, Heap<Entry>>();
const UNFIT: readonly (keyof Unfit)[] = ["players", "stochastic", "discount", "widening", "outcomeWidening", "solver"];

/** @throws SearchError `INVALID_ARGUMENT` for what a search for a way can not handle. */
export function resolveWay(options: WayOptions): ProposalParams {
  for (const option of UNFIT) {
    if ((options as TreeOptions)[option] !== undefined)
      throw invalidArgument(option, "present", "left out: this search looks for one way of one player without chance");
  }
  const { proposalsPerNode } = options;
  return { proposalsPerNode: integer("proposalsPerNode", proposalsPerNode, TREE_DEFAULTS.proposalsPerNode, 100_000) };
}

function createOrdered<Options extends WayOptions & AStarOptions & DeepeningOptions>(
  own: Pick<TreePolicy<Options, OrderParams>, "name" | "optionNames"> & { readonly order: Order },
): TreeSearch<Options, OrderParams> {
  const { order } = own;
  return createTreeSearch<Options, OrderParams>({
    name: own.name,
    optionNames: ["proposalsPerNode", ...own.optionNames],
    resolve: (options: Options, _config: TreeConfig) => ({
      ...resolveWay(options),
      weight: real("weight", options.weight, 1, { from: 0, to: 1e6 }),
      step: integer("step", options.step, 1, 1_000_000),
    }),
    select: () => -1,
    choose: (state) => choose(state, order),
    changed: (state, node) => {
      if (node === null) frontiers.delete(state);
      else noteChange(state, node, order);
    },
    backup: averageBackup,
    recommend: mostVisits,
    best: bestWay,
  });
}

/** The state at the top of the frontier that still has something to try; null once that is a goal. */
function choose(state: TreeState<OrderParams>, order: Order): Descent | null {
  const frontier = frontierOf(state, order);
  for (let entry = frontier.top; entry !== undefined; entry = frontier.top) {
    const { node } = entry;
    if (isCurrent(state, order, entry)) {
      if (state.tree.kind(node) === Kind.terminal) return null;
      const slot = nextSlot(state, node);
      if (slot !== null) return wayTo(state, node, slot);
    }
    frontier.pop();
  }
  return null;
}

/** An entry is stale if its node was reached on a better way since, and so has another entry. */
function isCurrent(state: TreeState<OrderParams>, order: Order, { node, key }: Entry): boolean {
  const kind = state.tree.kind(node);
  if (kind !== Kind.open && kind !== Kind.terminal) return false;
  return order(state, node).every((part, index) => part === key[index]);
}

function frontierOf(state: TreeState<OrderParams>, order: Order): Heap<Entry> {
  const known = frontiers.get(state);
  if (known !== undefined) return known;
  const frontier = new Heap<Entry>(isBefore);
  for (let node = 0; node < state.tree.size; node += 1) enter(frontier, state, node, order);
  frontiers.set(state, frontier);
  return frontier;
}

function isBefore(left: Entry, right: Entry): boolean {
  for (const [index, part] of left.key.entries()) {
    const other = right.key[index] as number;
    if (part !== other) return part > other;
  }
  return left.node < right.node;
}

function enter(frontier: Heap<Entry>, state: TreeState<OrderParams>, node: number, order: Order): void {
  const kind = state.tree.kind(node);
  if (kind === Kind.open || kind === Kind.terminal) frontier.push({ node, key: order(state, node) });
}

/** After something came of an action of a node: its children, and itself if there is more to try. */
function noteChange(state: TreeState<OrderParams>, node: number, order: Order): void {
  const { tree } = state;
  const frontier = frontierOf(state, order);
  if (nextSlot(state, node) !== null) enter(frontier, state, node, order);
  const changed = tree.children(node);
  for (const child of changed) {
    if (tree.kind(child) === Kind.link && isBetterWay(state, child)) {
      const target = tree.columns.target.get(child);
      swapPlaces(tree, child, target);
      // Everything below is reached on a better way now, and so perhaps is what is linked to from there.
      changed.push(...descendants(state, target));
    } else {
      enter(frontier, state, child, order);
    }
  }
}

/** Whether a link leads to its state with more gain than the way on which the state stands; never to something above the link. */
function isBetterWay(state: TreeState, link: number): boolean {
  const { tree } = state;
  const target = tree.columns.target.get(link);
  if (target === tree.root) return false;
  for (let at = tree.columns.parent.get(link); at !== tree.root; at = tree.columns.parent.get(at))
    if (at === target) return false;
  return gainOf(state, link) > gainOf(state, target);
}

function descendants({ tree }: TreeState, top: number): number[] {
  const found = [top];
  for (const node of found) found.push(...tree.children(node));
  return found;
}

/**
 * The state that looks best goes on first, whatever it took to get there.
 *
 * Source: greedy best-first search, Doran and Michie (1966).
 */
export const bestFirst: TreeSearch<WayOptions, OrderParams> = createOrdered<WayOptions>({
  name: "best-first",
  optionNames: [],
  order: ({ tree }, node) => [tree.columns.raw.get(node)],
});

/**
 * The state that cost least so far goes on first: rewards are costs below 0. The first goal to be taken on has the cheapest way.
 *
 * Source: Dijkstra (1959).
 */
export const uniformCost: TreeSearch<WayOptions, OrderParams> = createOrdered<WayOptions>({
  name: "uniform-cost",
  optionNames: [],
  order: (state, node) => [gainOf(state, node)],
});

/**
 * The state with the greatest sum of what was gained and what is told to be still to gain goes on first. If values are never less than
 * what can really be gained (costs never overestimated), the first goal to be taken on has the best way.
 *
 * Source: Hart, Nilsson and Raphael (1968); weights: Pohl (1970).
 */
export const aStar: TreeSearch<AStarOptions, OrderParams> = createOrdered<AStarOptions>({
  name: "a-star",
  optionNames: ["weight"],
  // Of equals the one further on its way.
  order: (state, node) => {
    const gain = gainOf(state, node);
    return [gain + state.params.weight * state.tree.columns.raw.get(node), gain === 0 ? 0 : -gain];
  },
});

/**
 * Depth first to a limit that is raised when everything above it is known: finds a goal with the fewest decisions, up to `step`.
 *
 * Source: Korf (1985). States are kept, so that no round does again what an earlier one did.
 */
export const iterativeDeepening: TreeSearch<DeepeningOptions, OrderParams> = createOrdered<DeepeningOptions>({
  name: "iterative-deepening",
  optionNames: ["step"],
  order: ({ tree, params }, node) => {
    const depth = tree.columns.depth.get(node) - tree.columns.depth.get(tree.root);
    // A state is taken on in the round whose limit lies below it; goals end the search in the round that reaches them.
    const round =
      tree.kind(node) === Kind.terminal ? Math.ceil(depth / params.step) - 1 : Math.floor(depth / params.step);
    return [-round, depth, -tree.columns.slot.get(node)];
  },
});
