import type { RecordedStep } from "./outcome.js";
import type { BackupRule, TreePolicy } from "./policy.js";
import { INTEGER, INTEGER_STRIDE, REAL, REAL_STRIDE } from "./rows.js";
import type { Line, TreeRecord, TreeState } from "./state.js";
import { Flag, Kind, NONE, type Tree } from "./tree.js";
import { finite, isClosed, nextMean, normalise, stateValue } from "./value.js";

type Policy<Params> = Pick<TreePolicy<never, Params>, "backup" | "evaluate" | "keepsSquares">;

/** Counts a simulation as under way, or with -1 as not. */
export function countInFlight({ tree }: TreeState, path: readonly number[], difference: 1 | -1): void {
  const { integers } = tree.rows;
  for (let index = 0; index < path.length; index += 1) {
    const at = (path[index] as number) * INTEGER_STRIDE + INTEGER.inFlight;
    integers[at] = (integers[at] as number) + difference;
  }
}

/** A trial that taught nothing: what it had reserved is given back. */
export function mergeLost(state: TreeState, record: TreeRecord): void {
  countInFlight(state, record.path, -1);
  const row = record.path.at(-1);
  if (row !== undefined) dropIfUnused(state, row);
}

/** The action stays where it is and is never tried again. */
export function mergeRejected(state: TreeState, record: TreeRecord): void {
  const { tree } = state;
  countInFlight(state, record.path, -1);
  const row = record.path.at(-1);
  if (row === undefined) return;
  if (tree.kind(row) === Kind.pending && tree.columns.inFlight.get(row) === 0) tree.columns.kind.set(row, Kind.dead);
  closeUpwards(state, record.path.slice(0, -1));
}

/** Makes a result part of the tree. Returns the node that is new, or -1; `unused` are checkpoints that nobody needs. */
export function mergeStep<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  record: TreeRecord,
  step: RecordedStep,
): number {
  const { tree } = state;
  state.steps += 1;
  const row = record.path.at(-1) as number;
  if (tree.has(row, Flag.chance)) return mergeOutcome(policy, state, record, step);
  countInFlight(state, record.path, -1);
  const rewards = [...record.rewards];
  rewards[rewards.length - 1] = step.reward;
  const twin = record.action === null ? findTwin(tree, record.from, row, step) : NONE;
  if (twin !== NONE) {
    dropIfUnused(state, row);
    const isSameEnd = tree.kind(twin) === Kind.terminal;
    const value = isSameEnd ? 0 : tree.kind(twin) === Kind.link ? undefined : step.value;
    // The reward is that of the action as it was first told.
    rewards[rewards.length - 1] = tree.columns.reward.get(twin);
    backUp(policy, state, { path: [...record.path.slice(0, -1), twin], rewards }, value);
    return NONE;
  }
  tree.columns.reward.set(row, step.reward);
  if (record.action === null) tree.setLabel(row, step.action);
  const known = step.key === null ? undefined : state.nodeOfKey.get(step.key);
  if (known !== undefined) {
    tree.columns.kind.set(row, Kind.link);
    tree.columns.target.set(row, known);
    if (!record.path.includes(known) && !step.terminated) {
      rewards.push(0);
      backUp(policy, state, { path: [...record.path, known], rewards }, step.value);
    } else backUp(policy, state, { path: record.path, rewards });
    return NONE;
  }
  open(policy, state, row, step);
  backUp(policy, state, { path: record.path, rewards });
  return row;
}

/** A sample of a chance node: a new outcome is evaluated; from one that is known the simulation goes on. */
function mergeOutcome<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  record: TreeRecord,
  step: RecordedStep,
): number {
  const { tree } = state;
  const chance = record.path.at(-1) as number;
  const known = tree.findChild(chance, (child) => tree.key(child) === step.key);
  const rewards = [...record.rewards, step.reward];
  if (known !== NONE && tree.kind(known) !== Kind.terminal) {
    tree.columns.inFlight.add(known, 1);
    state.continuing.push({ path: [...record.path, known], rewards });
    return NONE;
  }
  countInFlight(state, record.path, -1);
  if (known !== NONE) {
    backUp(policy, state, { path: [...record.path, known], rewards });
    return NONE;
  }
  tree.columns.kind.set(chance, Kind.open);
  const slot = tree.columns.childCount.get(chance);
  const depth = tree.columns.depth.get(chance);
  const row = tree.addChild({ parent: chance, slot, label: null, flags: 0, trial: record.id, depth });
  tree.columns.reward.set(row, step.reward);
  open(policy, state, row, step);
  backUp(policy, state, { path: [...record.path, row], rewards });
  return row;
}

/** Another child of the node that the same proposal led to. */
function findTwin(tree: Tree, node: number, row: number, { action }: RecordedStep): number {
  const isTwin = (child: number): boolean => {
    const kind = tree.kind(child);
    return child !== row && kind !== Kind.pending && kind !== Kind.dead && tree.label(child) === action;
  };
  return tree.findChild(node, isTwin);
}

function open<Params>(policy: Policy<Params>, state: TreeState<Params>, row: number, step: RecordedStep): void {
  const { tree, config } = state;
  const { columns } = tree;
  const value = step.terminated ? 0 : finite(policy.evaluate?.(state, step) ?? step.value);
  columns.kind.set(row, step.terminated ? Kind.terminal : Kind.open);
  columns.raw.set(row, value);
  if (step.player === 1) tree.raise(row, Flag.second);
  tree.setActions(row, step.actions, step.priors);
  tree.setKey(row, step.key);
  tree.setNote(row, step.note);
  // Nothing can start from a state that has ended.
  tree.setCheckpoint(row, step.terminated ? null : step.checkpoint);
  if (config.transpositions && step.key !== null) state.nodeOfKey.set(step.key, row);
}

/**
 * Counts one simulation on every node of a line and lets its return arrive, from the end to the root.
 *
 * @param value What the last state was told to be worth; absent: what it is known to be worth.
 */
export function backUp<Params>(
  policy: Policy<Params>,
  state: TreeState<Params>,
  { path, rewards }: Line,
  value?: number,
): void {
  const { tree, config } = state;
  const { integers } = tree.rows;
  const keepsSquares = config.range !== "observed" && (policy.keepsSquares?.(state.params) ?? false);
  let arrived = value ?? leafValue(state, path[path.length - 1] as number);
  for (let index = path.length - 1; index >= 0; index -= 1) {
    const node = path[index] as number;
    const at = node * INTEGER_STRIDE + INTEGER.visits;
    integers[at] = (integers[at] as number) + 1;
    if (tree.kind(node) === Kind.terminal) tree.columns.value.set(node, 0);
    else arriveAt(policy.backup, state, node, arrived);
    if (index === 0) break;
    if (tree.kind(path[index - 1] as number) === Kind.link) continue;
    if (!tree.has(node, Flag.chance)) arrived = finite((rewards[index] as number) + config.discount * arrived);
    noteReturn(state, arrived);
    if (keepsSquares) noteSquare(state, node, arrived);
  }
  state.simulations += 1;
  closeUpwards(state, path);
}

function arriveAt<Params>(backup: BackupRule<Params>, state: TreeState<Params>, node: number, arrived: number): void {
  backup(state, node, arrived);
  const { reals } = state.tree.rows;
  const at = node * REAL_STRIDE + REAL.value;
  reals[at] = finite(reals[at] as number);
}

function leafValue(state: TreeState, node: number): number {
  const { tree } = state;
  if (tree.kind(node) === Kind.link) return stateValue(state, tree.columns.target.get(node));
  const isExact = state.config.solver && tree.has(node, Flag.closed);
  return isExact ? tree.columns.bound.get(node) : tree.columns.raw.get(node);
}

/** Keeps the range of returns. */
function noteReturn(state: TreeState, arrived: number): void {
  const { range } = state;
  if (range === null) state.range = { lowest: arrived, highest: arrived };
  else if (arrived < range.lowest) state.range = { ...range, lowest: arrived };
  else if (arrived > range.highest) state.range = { ...range, highest: arrived };
}

/** Keeps the mean square of the returns of a step, as shares of the range. */
function noteSquare({ config, tree }: TreeState, node: number, arrived: number): void {
  if (config.range === "observed") return;
  const { squares, visits } = tree.columns;
  const share = normalise(arrived, config.range[0], config.range[1]);
  squares.set(node, nextMean(squares.get(node), share * share, visits.get(node)));
}

/** Closes what nothing more can be learned of, from the end of a path to the first node that stays open. */
export function closeUpwards(state: TreeState, path: readonly number[]): void {
  if (state.config.stochastic) return;
  for (let index = path.length - 1; index >= 0; index -= 1) {
    const node = path[index] as number;
    if (state.tree.kind(node) === Kind.link) continue;
    if (!state.tree.has(node, Flag.closed)) close(state, node);
    const isNews = state.tree.has(node, Flag.closed) || state.tree.has(node, Flag.bounded);
    if (!isNews) return;
  }
}

function close(state: TreeState, node: number): void {
  const { tree, config } = state;
  const { columns } = tree;
  const isHorizon = columns.depth.get(node) - columns.depth.get(tree.root) >= config.maxDepth;
  if (tree.kind(node) === Kind.terminal || (isHorizon && node !== tree.root)) {
    columns.bound.set(node, tree.kind(node) === Kind.terminal ? 0 : columns.raw.get(node));
    tree.raise(node, Flag.closed | Flag.bounded);
    return;
  }
  const sign = tree.sign(node);
  let best = Number.NaN;
  let isOpen = config.proposals && columns.childCount.get(node) < config.maxWidth;
  for (let child = columns.firstChild.get(node); child !== NONE; child = columns.nextSibling.get(child)) {
    if (tree.kind(child) === Kind.dead) continue;
    if (!isClosed(state, child)) {
      isOpen = true;
      continue;
    }
    const q = exactReturn(state, child);
    if (Number.isNaN(best) || sign * q > sign * best) best = q;
  }
  if (columns.childCount.get(node) < Math.min(tree.actions(node)?.length ?? 0, config.maxWidth)) isOpen = true;
  if (!Number.isNaN(best)) {
    columns.bound.set(node, best);
    tree.raise(node, Flag.bounded);
  } else if (!isOpen) {
    // All that was tried was rejected: the state is worth what it was told to be.
    columns.bound.set(node, columns.raw.get(node));
    tree.raise(node, Flag.bounded);
  }
  if (!isOpen || isBestPossible(state, node, best)) tree.raise(node, Flag.closed);
}

function exactReturn(state: TreeState, child: number): number {
  const { tree, config } = state;
  return finite(tree.columns.reward.get(child) + config.discount * tree.columns.bound.get(tree.state(child)));
}

/** Whether the mover has a proven return that nothing can exceed: then the others need not be looked at. */
function isBestPossible({ config, tree }: TreeState, node: number, best: number): boolean {
  if (config.range === "observed" || !config.solver || Number.isNaN(best)) return false;
  return tree.sign(node) > 0 ? best >= config.range[1] : best <= config.range[0];
}

/** Takes away a row that was reserved and has come to nothing. */
function dropIfUnused({ tree }: TreeState, row: number): void {
  const { inFlight, visits } = tree.columns;
  if (tree.kind(row) !== Kind.pending || row === tree.root || inFlight.get(row) > 0 || visits.get(row) > 0) return;
  tree.detach(row);
  tree.free(row);
}
