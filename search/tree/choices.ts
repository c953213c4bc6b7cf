import type { TreeState } from "./state.js";
import { Kind, NONE, type Tree } from "./tree.js";
import { isClosed, normalise, stepReturn } from "./value.js";

/** The slot of an action that is still to be proposed. */
export const PROPOSE = -1;

/**
 * What can be chosen at one decision, as columns that are used again for the next: `child[i]`, `visits[i]` … belong to the i-th
 * choice, for i below `count`. Choices stand in the order of the action list, proposals behind it in the order of their discovery.
 * Values and returns are those of the player to move.
 */
export class Choices {
  node: number = NONE;
  /** 1 where player 0 is to move, -1 where player 1 is. */
  sign: 1 | -1 = 1;
  count = 0;
  /** How many are not blocked; and of these, how many without visits and without simulations under way. */
  free = 0;
  untried = 0;
  /** The child's row, or -1 where the action has not been tried. */
  child = new Int32Array(0);
  /** Index in the action list; proposals follow behind it; `PROPOSE` for the one that would be new. */
  slot = new Int32Array(0);
  /** Simulations that came through and are merged. */
  visits = new Float64Array(0);
  /** Simulations under way; 0 where the search ignores them. */
  inFlight = new Float64Array(0);
  /** Return of the step; 0 where there are no visits. */
  q = new Float64Array(0);
  /** Uniform where none were given. */
  prior = new Float64Array(0);
  /** 1 where it must not be chosen now: under way, nothing to choose below it, proven, or not to be added yet. */
  blocked = new Uint8Array(0);
  /** Sums over all choices. */
  totalVisits = 0;
  totalInFlight = 0;
  /** What the state was told to be worth, and what the search makes of it. */
  raw = 0;
  value = 0;
  /** Whether something below is under way: what is blocked may be free later. */
  isWaiting = false;

  /** Index of the choice that scores highest among those not blocked; the first of equals; -1 if all are blocked. */
  best(score: (index: number) => number): number {
    let best = -1;
    let highest = 0;
    for (let index = 0; index < this.count; index += 1) {
      if (this.blocked[index] === 1) continue;
      const value = score(index);
      if (best < 0 || value > highest) {
        best = index;
        highest = value;
      }
    }
    return best;
  }

  /** Makes room for at least `count` choices. */
  reserve(count: number): void {
    if (count <= this.child.length) return;
    const size = Math.max(16, 2 * count);
    this.child = new Int32Array(size);
    this.slot = new Int32Array(size);
    this.visits = new Float64Array(size);
    this.inFlight = new Float64Array(size);
    this.q = new Float64Array(size);
    this.prior = new Float64Array(size);
    this.blocked = new Uint8Array(size);
  }
}

/** Whether one more action may be tried at a node; part of an algorithm. */
export type ExpandRule<Params = unknown> = (state: TreeState<Params>, node: number) => boolean;

interface FillOptions {
  readonly mayExpand: boolean;
  /** Nodes that were found to lead to nothing in this descent. */
  readonly avoid: ReadonlySet<number>;
}

/** Fills `choices` with what can be chosen at a decision. */
export function fillChoices(choices: Choices, state: TreeState, node: number, options: FillOptions): void {
  const { tree, config } = state;
  const list = tree.actions(node);
  const listed = list === null ? 0 : list.length;
  const children = tree.columns.childCount.get(node);
  const size = listed + children + 1;
  begin(choices, state, node, size);
  const bySlot = childrenBySlot(tree, node, size);
  const priors = tree.priors(node);
  const { kind } = tree.storage;
  for (let slot = 0; slot < listed; slot += 1) {
    const child = bySlot[slot] as number;
    if (child !== NONE && kind[child] === Kind.dead) continue;
    const index = add(choices, child, slot);
    choices.prior[index] = priors === null ? 1 / listed : (priors[slot] as number);
    if (child === NONE) addUntried(choices, index, options);
    else describe(choices, state, index, options.avoid);
  }
  if (config.widening !== null) keepLikeliest(choices);
  if (config.proposals) addProposals(choices, state, { listed, size, bySlot }, options);
}

function begin(choices: Choices, { tree }: TreeState, node: number, size: number): void {
  choices.reserve(size);
  choices.node = node;
  choices.sign = tree.sign(node);
  choices.count = 0;
  choices.free = 0;
  choices.untried = 0;
  choices.totalVisits = 0;
  choices.totalInFlight = 0;
  choices.isWaiting = false;
  choices.raw = choices.sign * tree.columns.raw.get(node);
  choices.value = choices.sign * tree.columns.value.get(node);
}

function add(choices: Choices, child: number, slot: number): number {
  const index = choices.count;
  choices.count += 1;
  choices.child[index] = child;
  choices.slot[index] = slot;
  return index;
}

function addUntried(choices: Choices, index: number, { mayExpand }: FillOptions): void {
  choices.visits[index] = 0;
  choices.inFlight[index] = 0;
  choices.q[index] = 0;
  choices.blocked[index] = mayExpand ? 0 : 1;
  if (!mayExpand) return;
  choices.free += 1;
  choices.untried += 1;
}

/** Copies what is known of a choice that has a child. */
function describe(choices: Choices, state: TreeState, index: number, avoid: ReadonlySet<number>): void {
  const { tree, config } = state;
  const { storage } = tree;
  const child = choices.child[index] as number;
  const visits = storage.visits[child] as number;
  const inFlight = storage.inFlight[child] as number;
  const counted = config.inFlight === "ignore" ? 0 : inFlight;
  if (inFlight > 0) choices.isWaiting = true;
  choices.visits[index] = visits;
  choices.inFlight[index] = counted;
  choices.q[index] = visits > 0 ? choices.sign * stepReturn(state, child) : 0;
  choices.totalVisits += visits;
  choices.totalInFlight += counted;
  const isPending = storage.kind[child] === Kind.pending && !config.stochastic;
  const isBlocked = isPending || (config.solver && isClosed(state, child)) || (avoid.size > 0 && avoid.has(child));
  choices.blocked[index] = isBlocked ? 1 : 0;
  if (isBlocked) return;
  choices.free += 1;
  if (visits + counted === 0) choices.untried += 1;
}

/** With widening only the likeliest of the actions that were not tried may be added. */
function keepLikeliest(choices: Choices): void {
  let likeliest = -1;
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.child[index] !== NONE || choices.blocked[index] === 1) continue;
    if (likeliest < 0 || (choices.prior[index] as number) > (choices.prior[likeliest] as number)) likeliest = index;
  }
  for (let index = 0; index < choices.count; index += 1) {
    if (choices.child[index] !== NONE || choices.blocked[index] === 1 || index === likeliest) continue;
    choices.blocked[index] = 1;
    choices.free -= 1;
    choices.untried -= 1;
  }
}

interface Proposals {
  readonly listed: number;
  readonly size: number;
  readonly bySlot: Int32Array;
}

/** What was proposed before, and, when no listed action is left untried, one proposal more. */
function addProposals(
  choices: Choices,
  state: TreeState,
  { listed, size, bySlot }: Proposals,
  options: FillOptions,
): void {
  const isListLeft = choices.child.subarray(0, choices.count).includes(NONE);
  for (let slot = listed; slot < size; slot += 1) {
    const child = bySlot[slot] as number;
    if (child === NONE || state.tree.kind(child) === Kind.dead) continue;
    const index = add(choices, child, slot);
    choices.prior[index] = 1 / size;
    describe(choices, state, index, options.avoid);
  }
  if (isListLeft) return;
  const index = add(choices, NONE, PROPOSE);
  choices.prior[index] = 1 / size;
  addUntried(choices, index, options);
}

let slots = new Int32Array(64);

/** Child of each slot below `size`, in scratch that the next call overwrites. */
function childrenBySlot(tree: Tree, node: number, size: number): Int32Array {
  if (slots.length < size) slots = new Int32Array(2 * size);
  slots.fill(NONE, 0, size);
  const { firstChild, nextSibling, slot } = tree.storage;
  for (let child = firstChild[node] as number; child !== NONE; child = nextSibling[child] as number)
    slots[slot[child] as number] = child;
  return slots;
}

/** The lowest and highest return to measure by, for the player to move; null where nothing is known. */
export function returnBounds({ config, tree, range }: TreeState, node: number): readonly [number, number] | null {
  const isFirst = tree.sign(node) > 0;
  if (config.range !== "observed") {
    const [lowest, highest] = config.range;
    return isFirst ? [lowest, highest] : [-highest, -lowest];
  }
  if (range === null) return null;
  return isFirst ? [range.lowest, range.highest] : [-range.highest, -range.lowest];
}

/**
 * Return of a choice in [0, 1] between the bounds. With virtual loss, each simulation under way has already lost: it had a return
 * of 0, the worst for whoever is to move.
 */
export function normalisedReturn(
  { config }: TreeState,
  choices: Choices,
  index: number,
  bounds: readonly [number, number] | null,
): number {
  const visits = choices.visits[index] as number;
  if (visits === 0 || bounds === null) return 0;
  const q = normalise(choices.q[index] as number, bounds[0], bounds[1]);
  if (config.inFlight !== "virtual-loss") return q;
  return (q * visits) / (visits + lost(config.virtualLoss, choices, index));
}

/** Visits of a choice, with those under way. */
export function allVisits({ config }: TreeState, choices: Choices, index: number): number {
  const visits = choices.visits[index] as number;
  if (config.inFlight === "virtual-loss") return visits + lost(config.virtualLoss, choices, index);
  return visits + (choices.inFlight[index] as number);
}

/** Sum of `allVisits`. */
export function totalVisits({ config }: TreeState, choices: Choices): number {
  const weight = config.inFlight === "virtual-loss" ? config.virtualLoss : 1;
  return choices.totalVisits + weight * choices.totalInFlight;
}

function lost(virtualLoss: number, choices: Choices, index: number): number {
  return virtualLoss * (choices.inFlight[index] as number);
}
