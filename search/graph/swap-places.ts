import { NONE, type Tree } from "../tree/tree.js";

/**
 * Puts a state where a link to it stands, and the link where the state stood: the state keeps its number, its children and its
 * statistics, and from now on is reached the other way. Neither may be above the other, nor be the root.
 */
export function swapPlaces(tree: Tree, link: number, state: number): void {
  const { parent, slot, reward, depth } = tree.columns;
  const deeper = depth.get(link) - depth.get(state);
  const one = placeOf(tree, link);
  const two = placeOf(tree, state);
  // Side by side, each is the other's neighbour: only the order in their parent's list changes.
  if (one.next === state) {
    put(tree, link, { ...two, before: state });
    put(tree, state, { ...one, next: link });
  } else if (two.next === link) {
    put(tree, state, { ...one, before: link });
    put(tree, link, { ...two, next: state });
  } else {
    put(tree, link, two);
    put(tree, state, one);
  }
  for (const column of [parent, slot, reward, depth]) {
    const kept = column.get(link);
    column.set(link, column.get(state));
    column.set(state, kept);
  }
  tree.slots.forget(one.parent);
  tree.slots.forget(two.parent);
  const label = tree.label(link);
  tree.setLabel(link, tree.label(state));
  tree.setLabel(state, label);
  const below = tree.children(state);
  for (const node of below) {
    depth.add(node, deeper);
    below.push(...tree.children(node));
  }
}

interface Place {
  readonly parent: number;
  readonly before: number;
  readonly next: number;
  readonly isLast: boolean;
}

function placeOf(tree: Tree, node: number): Place {
  const { firstChild, lastChild, nextSibling, parent } = tree.columns;
  const above = parent.get(node);
  let before: number = NONE;
  for (let child = firstChild.get(above); child !== node; child = nextSibling.get(child)) before = child;
  return { parent: above, before, next: nextSibling.get(node), isLast: lastChild.get(above) === node };
}

function put(tree: Tree, node: number, { parent, before, next, isLast }: Place): void {
  const { firstChild, lastChild, nextSibling } = tree.columns;
  if (before === NONE) firstChild.set(parent, node);
  else nextSibling.set(before, node);
  nextSibling.set(node, next);
  if (isLast) lastChild.set(parent, node);
}
