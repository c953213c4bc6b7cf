import type { SearchBlock } from "../algorithm.js";
import { MOST_KNOWN_IN_A_ROW, MOST_KNOWN_WITHOUT_CHOICE } from "./defaults.js";
import { ACTION_ANYWHERE, ACTION_SOON, ANY, actionOf, type Demand, type Descent, descend } from "./descend.js";
import { countInFlight } from "./merge.js";
import type { TreePolicy } from "./policy.js";
import type { Line, TreeRecord, TreeState } from "./state.js";
import { Flag, NONE } from "./tree.js";

/** Where the next simulation goes; `continues` is the index of the one that it takes up again, or -1. */
export interface Chosen {
  readonly descent: Descent;
  readonly continues: number;
}

type Policy<Params> = Pick<TreePolicy<never, Params>, "select" | "expand" | "choose">;

/** What is simulated next; null if nothing can be. Changes nothing, and depends on nothing but the state. */
export function choose<Params>(policy: Policy<Params>, state: TreeState<Params>): Chosen | null {
  const { knownInARow, book, config } = state;
  if (knownInARow < MOST_KNOWN_IN_A_ROW) return chooseLine(policy, state, ANY);
  const chosen = chooseLine(policy, state, ACTION_ANYWHERE);
  if (chosen?.descent.kind === "action") return chosen;
  const mustWait = book.open.length > 0 || knownInARow >= MOST_KNOWN_WITHOUT_CHOICE;
  const mayVisitsAllowMore = policy.expand !== undefined || config.widening !== null || config.outcomeWidening !== null;
  return mustWait || !mayVisitsAllowMore ? null : chooseLine(policy, state, ANY);
}

/** Where the next trial starts, if nothing that is known is simulated before it. */
export function chooseAction<Params>(policy: Policy<Params>, state: TreeState<Params>): Descent | null {
  return chooseLine(policy, state, ACTION_SOON)?.descent ?? null;
}

/** The first of the simulations that can go on, or else a new one from the root; null if there is none. */
function chooseLine<Params>(policy: Policy<Params>, state: TreeState<Params>, demand: Demand): Chosen | null {
  for (let index = 0; index < state.continuing.length; index += 1) {
    const descent = descend(policy, state, state.continuing[index] as Line, demand);
    if (descent !== null) return { descent, continues: index };
  }
  if (isSpent(state)) return null;
  const descent = policy.choose
    ? policy.choose(state)
    : descend(policy, state, { path: [state.tree.root], rewards: [0] }, demand);
  return descent === null ? null : { descent, continues: NONE };
}

/** Begins, or goes on with, what was chosen: its whole line counts as under way from now on. */
export function take(state: TreeState, { descent: { line }, continues }: Chosen): Line {
  const counted = continues < 0 ? 0 : (state.continuing.splice(continues, 1)[0]?.path.length ?? 0);
  countInFlight(state, counted === 0 ? line.path : line.path.slice(counted), 1);
  return line;
}

/** Asks for the action that was chosen, with a row to hold its place. */
export function reserve<Params>(
  policy: Pick<TreePolicy<never, Params>, "notes">,
  state: TreeState<Params>,
  chosen: Chosen,
  { child, slot }: Descent & { readonly kind: "action" },
): TreeRecord {
  const { tree, book, config } = state;
  const line = take(state, chosen);
  state.knownInARow = 0;
  const from = line.path[line.path.length - 1] as number;
  const action = child === NONE ? actionOf(state, from, slot) : tree.label(child);
  const row = child === NONE ? addRow(state, { from, slot, action }) : child;
  tree.columns.inFlight.add(row, 1);
  const isStochastic = config.stochastic;
  const rewards = [...line.rewards, isStochastic ? 0 : tree.columns.reward.get(row)];
  const notes = policy.notes?.(state, from) ?? [];
  return book.add({ path: [...line.path, row], rewards, from, action, notes });
}

function addRow(
  state: TreeState,
  { from, slot, action }: { from: number; slot: number; action: string | null },
): number {
  const { tree, book, config } = state;
  return tree.addChild({
    parent: from,
    slot: action === null ? Math.max(tree.actions(from)?.length ?? 0, tree.slotEnd(from)) : slot,
    label: action,
    // The row of an action is moved by whoever takes it.
    flags: config.stochastic ? Flag.chance | (tree.sign(from) < 0 ? Flag.second : 0) : 0,
    trial: book.asked,
    depth: tree.columns.depth.get(from) + 1,
  });
}

/** Why no new trial is chosen, apart from the window and from what the algorithm says. */
export function capOf(state: TreeState): SearchBlock | null {
  const { tree, book, config } = state;
  if (book.closed) return "finished";
  if (tree.has(tree.root, Flag.closed)) return "exhausted";
  const rows = config.stochastic ? 2 + book.open.length : 1;
  if (tree.live + rows > config.maxNodes) return "nodes";
  if (book.asked >= config.maxTrials) return "trials";
  return isSpent(state) && state.continuing.length === 0 ? "simulations" : null;
}

/** Why no new trial is given, the window included; null where one may be. What the algorithm has to say comes on top. */
export function blockOf(state: TreeState): SearchBlock | null {
  return capOf(state) ?? (state.book.open.length >= state.config.window ? "window" : null);
}

/** As many simulations as were wanted are merged or under way. */
function isSpent({ simulations, book, continuing, config }: TreeState): boolean {
  return simulations + book.open.length + continuing.length >= config.maxSimulations;
}
