import { ChildSlots } from "./child-slots.js";
import { INTEGER, INTEGER_STRIDE, NONE, type RowData, Rows, type TreeColumns } from "./rows.js";

export { NONE };

/**
 * What a row is.
 *
 * - `free`: nothing; it will be used again.
 * - `pending`: an action under way from the parent, or a chance node none of whose outcomes is known.
 * - `open`: a state that has been evaluated, or a chance node with outcomes.
 * - `terminal`: the environment has ended there.
 * - `dead`: the action was rejected; it is never tried again and counts for nothing.
 * - `link`: an action that leads to a state which stands elsewhere in the tree, see `target`.
 */
export const Kind = { free: 0, pending: 1, open: 2, terminal: 3, dead: 4, link: 5 } as const;

/** Bits of the column `flags`. */
export const Flag = {
  /** Below a decision in a stochastic environment: its children are the different outcomes of one action. */
  chance: 1,
  /** `bound` is its exact value; nothing more can be learned here. */
  closed: 2,
  /** `bound` is set: the best value that is proven for the player to move, the worst if the environment takes the choice. */
  bounded: 4,
  /** Player 1 is to move. */
  second: 8,
} as const;

/** A tree as plain data: one list a field, by row. */
export interface TreeData {
  readonly root: number;
  readonly firstFree: number;
  readonly live: number;
  readonly columns: RowData;
  readonly labels: readonly (string | null)[];
  readonly keys: readonly (string | null)[];
  readonly checkpoints: readonly (string | null)[];
  /** Different lists of actions, and which of them each row has; -1 for none. */
  readonly lists: readonly (readonly string[])[];
  readonly listOf: readonly number[];
  /** Sparse: rows that have notes, and rows that have priors; by row. */
  readonly notes: readonly (readonly [node: number, note: string])[];
  readonly priors: readonly (readonly [node: number, priors: readonly number[]])[];
}

/** What is known of a child before anything came of it. */
export interface NewChild {
  readonly parent: number;
  readonly slot: number;
  readonly label: string | null;
  readonly flags: number;
  readonly trial: number;
  readonly depth: number;
}

/**
 * The rows of a search tree. The index of a row is the id of its node: it stays the same until the node is dropped, and may then be
 * given to another. 168 bytes a node and 4 for each action of a node with children, and what its strings and priors take.
 */
export class Tree {
  readonly columns: TreeColumns;
  root: number;
  /** Rows that are in use. */
  live: number;
  /** The numbers of all rows; `columns` has the same field by field. */
  readonly rows: Rows;
  /** Children by their slots. */
  readonly slots: ChildSlots;
  #firstFree: number;
  /** From the parent to this node; null for the root and for outcomes of chance nodes. */
  readonly #labels: (string | null)[];
  /** What the environment calls the state. */
  readonly #keys: (string | null)[];
  readonly #checkpoints: (string | null)[];
  /** Actions that can be taken; null where they are proposed one at a time. */
  readonly #lists: (readonly string[] | null)[];
  readonly #priors: (readonly number[] | null)[];
  readonly #notes: Map<number, string>;
  /** Equal lists are kept once. Emptied when it has grown large: it saves space and nothing depends on it. */
  readonly #knownLists = new Map<string, readonly string[]>();
  #lastList: readonly string[] | null = null;

  constructor(data: TreeData) {
    this.rows = new Rows(data.columns);
    this.columns = this.rows.columns;
    this.slots = new ChildSlots(this.rows);
    this.root = data.root;
    this.live = data.live;
    this.#firstFree = data.firstFree;
    this.#labels = [...data.labels];
    this.#keys = [...data.keys];
    this.#checkpoints = [...data.checkpoints];
    this.#lists = data.listOf.map((list) => (list === NONE ? null : this.#intern(data.lists[list] ?? [])));
    this.#priors = data.listOf.map(() => null);
    this.#notes = new Map(data.notes);
    for (const [node, priors] of data.priors) this.#priors[node] = [...priors];
  }

  /** Rows, free ones included. */
  get size(): number {
    return this.rows.length;
  }

  kind(node: number): number {
    return this.rows.integers[node * INTEGER_STRIDE + INTEGER.kind] as number;
  }

  has(node: number, flag: number): boolean {
    return ((this.rows.integers[node * INTEGER_STRIDE + INTEGER.flags] as number) & flag) !== 0;
  }

  raise(node: number, flag: number): void {
    this.columns.flags.set(node, this.columns.flags.get(node) | flag);
  }

  label(node: number): string | null {
    return this.#labels[node] ?? null;
  }

  setLabel(node: number, label: string | null): void {
    this.#labels[node] = label;
  }

  key(node: number): string | null {
    return this.#keys[node] ?? null;
  }

  setKey(node: number, key: string | null): void {
    this.#keys[node] = key;
  }

  checkpoint(node: number): string | null {
    return this.#checkpoints[node] ?? null;
  }

  setCheckpoint(node: number, checkpoint: string | null): void {
    this.#checkpoints[node] = checkpoint;
  }

  note(node: number): string | null {
    return this.#notes.get(node) ?? null;
  }

  setNote(node: number, note: string | null): void {
    if (note !== null) this.#notes.set(node, note);
  }

  /** Rows that have notes, in no order. */
  noted(): number[] {
    return [...this.#notes.keys()];
  }

  actions(node: number): readonly string[] | null {
    return this.#lists[node] ?? null;
  }

  priors(node: number): readonly number[] | null {
    return this.#priors[node] ?? null;
  }

  /** Keeps the priors themselves: nobody may change them later. */
  setActions(node: number, actions: readonly string[] | null, priors: readonly number[] | null): void {
    this.#lists[node] = actions === null ? null : this.#intern(actions);
    this.#priors[node] = priors;
  }

  /** 1 where player 0 is to move, -1 where player 1 is. */
  sign(node: number): 1 | -1 {
    return this.has(node, Flag.second) ? -1 : 1;
  }

  /** The row where the state of a node stands: itself but for links. */
  state(node: number): number {
    return this.kind(node) === Kind.link ? this.columns.target.get(node) : node;
  }

  /** Appends a pending child. */
  addChild({ parent, slot, label, flags, trial, depth }: NewChild): number {
    const node = this.#take();
    const { columns } = this;
    columns.kind.set(node, Kind.pending);
    columns.parent.set(node, parent);
    columns.slot.set(node, slot);
    columns.flags.set(node, flags);
    columns.trial.set(node, trial);
    columns.depth.set(node, depth);
    this.#labels[node] = label;
    const last = columns.lastChild.get(parent);
    if (last === NONE) columns.firstChild.set(parent, node);
    else columns.nextSibling.set(last, node);
    columns.lastChild.set(parent, node);
    columns.childCount.add(parent, 1);
    this.slots.set(parent, slot, node);
    return node;
  }

  /** The child of the decision or chance node that fits, or -1. */
  findChild(parent: number, fits: (child: number) => boolean): number {
    for (let child = this.columns.firstChild.get(parent); child !== NONE; child = this.columns.nextSibling.get(child))
      if (fits(child)) return child;
    return NONE;
  }

  children(parent: number): number[] {
    const children: number[] = [];
    for (let child = this.columns.firstChild.get(parent); child !== NONE; child = this.columns.nextSibling.get(child))
      children.push(child);
    return children;
  }

  /** One more than the greatest slot of a child; 0 without children. */
  slotEnd(parent: number): number {
    const { firstChild, nextSibling, slot } = this.columns;
    let end = 0;
    for (let child = firstChild.get(parent); child !== NONE; child = nextSibling.get(child))
      end = Math.max(end, slot.get(child) + 1);
    return end;
  }

  /** Takes a node out of its parent's children. */
  detach(node: number): void {
    const { firstChild, lastChild, nextSibling, parent: parents } = this.columns;
    const parent = parents.get(node);
    const next = nextSibling.get(node);
    let before: number = NONE;
    for (let child = firstChild.get(parent); child !== node; child = nextSibling.get(child)) before = child;
    if (before === NONE) firstChild.set(parent, next);
    else nextSibling.set(before, next);
    if (lastChild.get(parent) === node) lastChild.set(parent, before);
    this.columns.childCount.add(parent, -1);
    this.slots.set(parent, this.columns.slot.get(node), NONE);
  }

  /** Gives a row back. Nothing may point to it any more. */
  free(node: number): void {
    this.slots.forget(node);
    this.rows.clear(node);
    this.columns.nextSibling.set(node, this.#firstFree);
    this.#firstFree = node;
    this.live -= 1;
    this.#clear(node);
  }

  toData(): TreeData {
    const lists: (readonly string[])[] = [];
    const indexes = new Map<readonly string[], number>();
    const listOf = this.#lists.map((list) => {
      if (list === null) return NONE;
      const known = indexes.get(list);
      if (known !== undefined) return known;
      indexes.set(list, lists.length);
      lists.push([...list]);
      return lists.length - 1;
    });
    const priors: (readonly [number, readonly number[]])[] = [];
    for (const [node, values] of this.#priors.entries()) if (values !== null) priors.push([node, [...values]]);
    return {
      root: this.root,
      firstFree: this.#firstFree,
      live: this.live,
      columns: this.rows.toData(),
      labels: [...this.#labels],
      keys: [...this.#keys],
      checkpoints: [...this.#checkpoints],
      lists,
      listOf,
      notes: [...this.#notes].sort(([one], [two]) => one - two),
      priors,
    };
  }

  #take(): number {
    this.live += 1;
    const node = this.#firstFree;
    if (node !== NONE) {
      this.#firstFree = this.columns.nextSibling.get(node);
      this.columns.nextSibling.set(node, NONE);
      return node;
    }
    this.rows.push();
    this.#labels.push(null);
    this.#keys.push(null);
    this.#checkpoints.push(null);
    this.#lists.push(null);
    this.#priors.push(null);
    return this.size - 1;
  }

  #clear(node: number): void {
    this.#labels[node] = null;
    this.#keys[node] = null;
    this.#checkpoints[node] = null;
    this.#lists[node] = null;
    this.#priors[node] = null;
    this.#notes.delete(node);
  }

  #intern(list: readonly string[]): readonly string[] {
    const last = this.#lastList;
    if (last !== null && (last === list || isSame(last, list))) return last;
    this.#lastList = this.#internAnew(list);
    return this.#lastList;
  }

  #internAnew(list: readonly string[]): readonly string[] {
    const name = JSON.stringify(list);
    const known = this.#knownLists.get(name);
    if (known !== undefined) return known;
    if (this.#knownLists.size >= MOST_KNOWN_LISTS) this.#knownLists.clear();
    const kept = Object.freeze([...list]);
    this.#knownLists.set(name, kept);
    return kept;
  }
}

const MOST_KNOWN_LISTS = 1_024;

function isSame(one: readonly string[], two: readonly string[]): boolean {
  if (one.length !== two.length) return false;
  for (let index = 0; index < one.length; index += 1) if (one[index] !== two[index]) return false;
  return true;
}

/** A tree of one pending root. */
export function createTree(): Tree {
  const rows = new Rows();
  rows.push();
  const tree = new Tree({
    root: 0,
    firstFree: NONE,
    live: 1,
    columns: rows.toData(),
    labels: [null],
    keys: [null],
    checkpoints: [null],
    lists: [],
    listOf: [NONE],
    notes: [],
    priors: [],
  });
  tree.columns.kind.set(0, Kind.pending);
  return tree;
}
