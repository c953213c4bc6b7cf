import { type Choices, PROPOSE } from "./choices.js";
import { INTEGER, INTEGER_STRIDE, REAL, REAL_STRIDE } from "./rows.js";
import type { TreeState } from "./state.js";
import { Flag, Kind, NONE } from "./tree.js";
import { finite, isClosed, stepReturn } from "./value.js";

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
  const end = config.proposals ? Math.max(listed, tree.slotEnd(node)) : listed;
  begin(choices, state, node, end + 1);
  const first = tree.slots.of(node, end);
  addSlots(choices, state, { first, from: 0, to: listed, isListed: true }, options);
  addPriors(choices, tree.priors(node), 1 / listed);
  if (config.widening !== null) keepLikeliest(choices);
  if (config.proposals) addProposals(choices, state, { first, from: listed, to: end, isListed: false }, options);
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
  choices.isHeldUp = false;
  const { reals } = tree.rows;
  choices.raw = choices.sign * (reals[node * REAL_STRIDE + REAL.raw] as number);
  choices.value = choices.sign * (reals[node * REAL_STRIDE + REAL.value] as number);
}

function addPriors({ count, prior, slot }: Choices, priors: readonly number[] | null, uniform: number): void {
  if (priors === null) prior.fill(uniform, 0, count);
  else for (let index = 0; index < count; index += 1) prior[index] = priors[slot[index] as number] as number;
}

interface SlotRange {
  /** Where the node's block starts among all slots. */
  readonly first: number;
  readonly from: number;
  readonly to: number;
  /** Slots of the action list can be chosen without a child. */
  readonly isListed: boolean;
}

/**
 * Adds up visits and simulations under way; rejected actions have none. A pass of its own, because it asks for the rows of all children one
 * right after the other: the waits for memory then run side by side, and `addSlots` finds the rows in the cache.
 */
function addTotals(choices: Choices, { tree, config }: TreeState, { first, from, to }: SlotRange): void {
  const { integers } = tree.rows;
  const { ids } = tree.slots;
  let visits = 0;
  let inFlight = 0;
  for (let at = first + from; at < first + to; at += 1) {
    const child = ids[at] as number;
    if (child === NONE) continue;
    visits += integers[child * INTEGER_STRIDE + INTEGER.visits] as number;
    inFlight += integers[child * INTEGER_STRIDE + INTEGER.inFlight] as number;
  }
  choices.totalVisits += visits;
  if (inFlight > 0) choices.isWaiting = true;
  if (config.inFlight !== "ignore") choices.totalInFlight += inFlight;
}

/**
 * Adds what can be chosen in a range of slots, and what is known of each. Everything that does not change is read once: this loop is
 * where a search of a large tree spends its time.
 */
function addSlots(choices: Choices, state: TreeState, range: SlotRange, { mayExpand, avoid }: FillOptions): void {
  const { tree, config } = state;
  const { integers } = tree.rows;
  const { ids } = tree.slots;
  const { child: children, slot: slots, visits: visitsOf, inFlight: inFlightOf, q, blocked, sign } = choices;
  const ignores = config.inFlight === "ignore";
  addTotals(choices, state, range);
  let { count, free, untried } = choices;
  for (let slot = range.from; slot < range.to; slot += 1) {
    const child = ids[range.first + slot] as number;
    const row = child * INTEGER_STRIDE;
    let isBlocked = !mayExpand;
    let visits = 0;
    let counted = 0;
    if (child !== NONE) {
      const kind = integers[row + INTEGER.kind] as number;
      if (kind === Kind.dead) continue;
      visits = integers[row + INTEGER.visits] as number;
      counted = ignores ? 0 : (integers[row + INTEGER.inFlight] as number);
      isBlocked = (kind === Kind.pending && !config.stochastic) || (avoid.size > 0 && avoid.has(child));
      if (isBlocked) choices.isHeldUp = true;
      if (config.solver && isClosed(state, child)) isBlocked = true;
    } else if (!range.isListed) continue;
    children[count] = child;
    slots[count] = slot;
    visitsOf[count] = visits;
    inFlightOf[count] = counted;
    q[count] = visits > 0 ? sign * returnOf(state, child) : 0;
    blocked[count] = isBlocked ? 1 : 0;
    count += 1;
    if (isBlocked) continue;
    free += 1;
    if (visits + counted === 0) untried += 1;
  }
  choices.count = count;
  choices.free = free;
  choices.untried = untried;
}

/** `stepReturn`, with a shorter way for the plain case: a state that stands where it is and has no proven bound. */
function returnOf(state: TreeState, child: number): number {
  const { integers, reals } = state.tree.rows;
  const row = child * INTEGER_STRIDE;
  const isPlain =
    integers[row + INTEGER.kind] === Kind.open && ((integers[row + INTEGER.flags] as number) & NOT_PLAIN) === 0;
  if (!isPlain) return stepReturn(state, child);
  const at = child * REAL_STRIDE;
  return finite((reals[at + REAL.reward] as number) + state.config.discount * (reals[at + REAL.value] as number));
}

const NOT_PLAIN = Flag.chance | Flag.closed | Flag.bounded;

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

/** What was proposed before, and, when no listed action is left untried, one proposal more. */
function addProposals(choices: Choices, state: TreeState, range: SlotRange, options: FillOptions): void {
  const listed = choices.count;
  const isListLeft = choices.child.subarray(0, listed).includes(NONE);
  addSlots(choices, state, range, options);
  if (!isListLeft) addNewProposal(choices, options);
  // No prior is known of a proposal: as likely as any action, if there were one more.
  const prior = 1 / (range.from + state.tree.columns.childCount.get(choices.node) + 1);
  choices.prior.fill(prior, listed, choices.count);
}

function addNewProposal(choices: Choices, { mayExpand }: FillOptions): void {
  const index = choices.count;
  choices.count += 1;
  choices.child[index] = NONE;
  choices.slot[index] = PROPOSE;
  choices.visits[index] = 0;
  choices.inFlight[index] = 0;
  choices.q[index] = 0;
  choices.blocked[index] = mayExpand ? 0 : 1;
  if (!mayExpand) return;
  choices.free += 1;
  choices.untried += 1;
}
