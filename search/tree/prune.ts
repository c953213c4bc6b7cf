import { invalidArgument } from "../errors.js";
import { countInFlight } from "./merge.js";
import type { Line, TreeRecord, TreeState } from "./state.js";
import { Flag, Kind, NONE, type Tree } from "./tree.js";

/**
 * Takes nodes away, with all that is below them and cannot be reached otherwise. Returns the checkpoints that nobody needs any more.
 * Trials under way there are over: what is told of them later is ignored.
 */
function dropNodes(state: TreeState, doomed: readonly number[], released: string[]): string[] {
  const { tree } = state;
  for (const node of doomed) {
    release(state, node, released);
    tree.free(node);
  }
  return released;
}

/** Ends a trial; the checkpoint of a result that waited for its turn is released. */
function abandon(state: TreeState, record: TreeRecord, released: string[]): void {
  if (record.outcome?.kind === "value" && record.outcome.checkpoint !== null) {
    state.held.delete(record.outcome.checkpoint);
    released.push(record.outcome.checkpoint);
  }
  state.book.abandon(record, { path: [], rewards: [] });
}

/** Ends the trials and simulations under way that go through a node for which `isGone` holds. */
function cancel(state: TreeState, isGone: (node: number) => boolean, released: string[]): void {
  const stays = (node: number): boolean => !isGone(node);
  for (const record of state.book.open) {
    if (record.path.every(stays)) continue;
    countInFlight(state, record.path.filter(stays), -1);
    abandon(state, record, released);
  }
  const kept: Line[] = [];
  for (const line of state.continuing.splice(0)) {
    if (line.path.every(stays)) kept.push(line);
    else countInFlight(state, line.path.filter(stays), -1);
  }
  state.continuing.push(...kept);
}

/** A subtree, from its top. With transpositions, also what is linked to from it. */
function reach(tree: Tree, top: number): Set<number> {
  const found = new Set([top]);
  for (const node of found) {
    if (tree.kind(node) === Kind.link) found.add(tree.columns.target.get(node));
    for (const child of tree.children(node)) found.add(child);
  }
  return found;
}

/** Everything else than the new root and what can be reached from it goes. Returns the checkpoints that nobody needs any more. */
export function moveRoot(state: TreeState, root: number): string[] {
  const { tree } = state;
  const { parent, target } = tree.columns;
  const kept = reach(tree, root);
  const doomed: number[] = [];
  const released: string[] = [];
  for (let node = 0; node < tree.size; node += 1)
    if (tree.kind(node) !== Kind.free && !kept.has(node)) doomed.push(node);
  cancelOutside(state, root, kept, released);
  tree.root = root;
  // A state that was found elsewhere now hangs on the first link that leads to it.
  for (const node of kept) {
    if (tree.kind(node) !== Kind.link || node === root) continue;
    const state = target.get(node);
    if (state !== root && !kept.has(parent.get(state))) {
      parent.set(state, node);
      tree.columns.reward.set(state, 0);
      tree.setLabel(state, null);
    }
  }
  parent.set(root, NONE);
  tree.columns.nextSibling.set(root, NONE);
  tree.setLabel(root, null);
  return dropNodes(state, doomed, released);
}

/** Lines that go on below the new root lose what is above it; the others end. */
function cancelOutside(state: TreeState, root: number, kept: ReadonlySet<number>, released: string[]): void {
  const fits = (path: readonly number[]): boolean => {
    const at = path.indexOf(root);
    return at >= 0 && path.slice(at).every((node) => kept.has(node));
  };
  for (const record of state.book.open) {
    const at = record.path.indexOf(root);
    if (fits(record.path) && at < record.path.length - 1) {
      state.book.reshape(record, { path: record.path.slice(at), rewards: [0, ...record.rewards.slice(at + 1)] });
    } else {
      countInFlight(state, record.path, -1);
      abandon(state, record, released);
    }
  }
  const lines = state.continuing.splice(0);
  for (const { path, rewards } of lines) {
    const at = path.indexOf(root);
    if (fits(path)) state.continuing.push({ path: path.slice(at), rewards: [0, ...rewards.slice(at + 1)] });
    else countInFlight(state, path, -1);
  }
}

/** Takes one node and its subtree away; its action counts as not tried. Returns the checkpoints that nobody needs any more. */
export function dropSubtree(state: TreeState, top: number): string[] {
  const { tree } = state;
  if (top === tree.root) throw invalidArgument("node", top, "a node below the root");
  if (state.config.transpositions) throw invalidArgument("node", top, "of a search without transpositions");
  const doomed = reach(tree, top);
  const released: string[] = [];
  cancel(state, (node) => doomed.has(node), released);
  tree.detach(top);
  for (let at = tree.columns.parent.get(top); at !== NONE; at = tree.columns.parent.get(at)) reopen(tree, at);
  return dropNodes(state, [...doomed], released);
}

/** Where something can be learned again. */
function reopen(tree: Tree, node: number): void {
  const { flags, bound } = tree.columns;
  flags.set(node, flags.get(node) & ~(Flag.closed | Flag.bounded));
  bound.set(node, 0);
}

function release(state: TreeState, node: number, released: string[]): void {
  const { tree } = state;
  const key = tree.key(node);
  if (key !== null && state.nodeOfKey.get(key) === node) state.nodeOfKey.delete(key);
  const checkpoint = tree.checkpoint(node);
  if (checkpoint === null || checkpoint === state.config.root.checkpoint) return;
  state.held.delete(checkpoint);
  released.push(checkpoint);
}
