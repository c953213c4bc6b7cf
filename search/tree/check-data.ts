import { COUNT, DataCheck, type Fields } from "../data-check.js";
import type { RecordedStep } from "./outcome.js";
import { INTEGER_FIELDS, REAL_FIELDS } from "./rows.js";
import type { SerialisedTree, TreeStart } from "./state.js";
import { Kind, type TreeData } from "./tree.js";

export const TREE_FORMAT = 2;

const LARGEST_INT32 = 2 ** 31;
/** Fields that hold a row, or -1. */
const LINKS = ["parent", "firstChild", "lastChild", "nextSibling", "target"] as const;

/**
 * Whether a value can be what `serialise` returned: every index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialisedTree(serialised: unknown, name: string): SerialisedTree {
  new TreeCheck(name).state(serialised);
  return serialised as SerialisedTree;
}

class TreeCheck extends DataCheck {
  state(value: unknown): void {
    const state = this.header<SerialisedTree>(value, TREE_FORMAT);
    const { root } = this.object<SerialisedTree["config"]>(state.config, "config");
    this.object(root, "config.root");
    this.object(state.params, "params");
    const size = this.#tree(this.object<TreeData>(state.tree, "tree"));
    for (const [record, field] of this.book(state.book)) {
      const { from, action, notes, outcome } = record as Fields<TreeStart> & { readonly outcome: unknown };
      this.#line(record, size, field);
      this.indexes([from], { from: 0, to: size }, `${field}.from`);
      this.strings([action ?? ""], `${field}.action`);
      this.strings(notes, `${field}.notes`);
      if (outcome !== null) this.#outcome(outcome, `${field}.outcome`);
    }
    for (const line of this.list(state.continuing, "continuing")) this.#line(line, size, "continuing");
    if (state.range !== null) {
      const { lowest, highest } = this.object<{ lowest: unknown; highest: unknown }>(state.range, "range");
      this.numbers([lowest, highest], 2, "range");
    }
    this.indexes([state.simulations, state.steps], COUNT, "simulations and steps");
    this.indexes([state.knownInARow], COUNT, "knownInARow");
    this.numbers([state.rootReward], 1, "rootReward");
  }

  #tree(tree: Fields<TreeData>): number {
    const size = this.list(tree.labels, "tree.labels").length;
    const columns = this.columns(tree.columns, [...INTEGER_FIELDS, ...REAL_FIELDS], {
      length: size,
      field: "tree.columns",
    });
    for (const field of INTEGER_FIELDS)
      this.indexes(columns[field], { from: -LARGEST_INT32, to: LARGEST_INT32 }, `tree.columns.${field}`);
    for (const field of LINKS) this.indexes(columns[field], { from: -1, to: size }, `tree.columns.${field}`);
    this.indexes(columns.kind, { from: 0, to: Kind.link + 1 }, "tree.columns.kind");
    this.indexes([tree.root], { from: 0, to: size }, "tree.root");
    this.indexes([tree.firstFree], { from: -1, to: size }, "tree.firstFree");
    this.indexes([tree.live], { from: 1, to: size + 1 }, "tree.live");
    const lists = this.list(tree.lists, "tree.lists");
    for (const list of lists) this.strings(list, "tree.lists");
    const listOf = this.list(tree.listOf, "tree.listOf");
    this.indexes(listOf, { from: -1, to: lists.length }, "tree.listOf");
    for (const field of ["labels", "keys", "checkpoints"] as const) {
      const texts = this.list(tree[field], `tree.${field}`);
      this.strings(
        texts.map((text) => text ?? ""),
        `tree.${field}`,
      );
      if (texts.length !== size) throw this.incompatible(`has not ${size} entries at tree.${field}`);
    }
    if (listOf.length !== size) throw this.incompatible(`has not ${size} entries at tree.listOf`);
    for (const entry of this.list(tree.notes, "tree.notes")) {
      const [node, note] = this.list(entry, "tree.notes");
      this.indexes([node], { from: 0, to: size }, "tree.notes");
      this.strings([note], "tree.notes");
    }
    for (const entry of this.list(tree.priors, "tree.priors")) {
      const [node, priors] = this.list(entry, "tree.priors");
      this.indexes([node], { from: 0, to: size }, "tree.priors");
      const wanted = this.list(lists[listOf[node as number] as number] ?? [], "tree.priors").length;
      this.numbers(priors, wanted, "tree.priors");
    }
    this.#ends(columns.parent, "parent");
    this.#ends(columns.nextSibling, "nextSibling");
    return size;
  }

  /** Whoever follows a field from any row comes to an end. */
  #ends(next: readonly number[], field: string): void {
    const seenFrom = new Int32Array(next.length).fill(-1);
    for (let start = 0; start < next.length; start += 1) {
      for (let at = start; at >= 0 && seenFrom[at] !== start; at = next[at] as number) {
        if ((seenFrom[at] as number) >= 0) break;
        seenFrom[at] = start;
        if (seenFrom[next[at] as number] === start) throw this.incompatible(`has a circle at tree.columns.${field}`);
      }
    }
  }

  #line(value: unknown, size: number, field: string): void {
    const { path, rewards } = this.object<TreeStart>(value, field);
    const nodes = this.list(path, `${field}.path`);
    this.indexes(nodes, { from: 0, to: size }, `${field}.path`);
    this.numbers(rewards, nodes.length, `${field}.rewards`);
  }

  #outcome(value: unknown, field: string): void {
    const step = this.object<RecordedStep>(value, field);
    const kind: unknown = step.kind;
    if (kind === "rejected" || kind === "lost") return;
    if (kind !== "value") throw this.incompatible(`has an unknown outcome at ${field}`);
    this.numbers([step.reward, step.value], 2, field);
    this.strings([step.action ?? "", step.key ?? "", step.note ?? "", step.checkpoint ?? ""], field);
    const actions = this.strings(step.actions ?? [], `${field}.actions`);
    if (step.priors !== null) this.numbers(step.priors, actions.length, `${field}.priors`);
    if (typeof step.terminated !== "boolean") throw this.incompatible(`has no truth value at ${field}.terminated`);
    this.indexes([step.player], { from: 0, to: 2 }, `${field}.player`);
  }
}
