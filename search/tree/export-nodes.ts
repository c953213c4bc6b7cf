import type { TreeState } from "./state.js";
import { Flag, Kind } from "./tree.js";
import { stateValue } from "./value.js";

/** One row of a tree. */
export interface ExportedTreeNode {
  readonly node: number;
  readonly parent: number | null;
  /**
   * - `state`: has been evaluated. `end`: the environment has ended there.
   * - `pending`: an action under way. `rejected`: one that can not be taken.
   * - `chance`: an action of a stochastic search; its children are its outcomes.
   * - `link`: an action that leads to the state of another row, `target`.
   */
  readonly kind: "state" | "end" | "pending" | "rejected" | "chance" | "link";
  /** null for the root, and for outcomes of a chance node. */
  readonly action: string | null;
  readonly key: string | null;
  readonly target: number | null;
  readonly depth: number;
  readonly visits: number;
  readonly inFlight: number;
  /** For player 0. */
  readonly value: number;
  readonly reward: number;
  readonly player: 0 | 1;
  readonly proven: boolean;
}

const KINDS: Readonly<Record<number, ExportedTreeNode["kind"]>> = {
  [Kind.pending]: "pending",
  [Kind.open]: "state",
  [Kind.terminal]: "end",
  [Kind.dead]: "rejected",
  [Kind.link]: "link",
};

/** The rows in use, in the order of their ids. Equal seeds and outcomes give equal rows. */
export function exportNodes(state: TreeState): ExportedTreeNode[] {
  const { tree } = state;
  const { columns } = tree;
  const nodes: ExportedTreeNode[] = [];
  for (let node = 0; node < tree.size; node += 1) {
    const kind = KINDS[tree.kind(node)];
    if (kind === undefined) continue;
    const parent = columns.parent.get(node);
    nodes.push({
      node,
      parent: parent < 0 ? null : parent,
      kind: tree.has(node, Flag.chance) && kind !== "rejected" ? "chance" : kind,
      action: tree.label(node),
      key: tree.key(node),
      target: kind === "link" ? columns.target.get(node) : null,
      depth: columns.depth.get(node),
      visits: columns.visits.get(node),
      inFlight: columns.inFlight.get(node),
      value: kind === "end" ? 0 : stateValue(state, node),
      reward: columns.reward.get(node),
      player: tree.has(node, Flag.second) ? 1 : 0,
      proven: tree.has(node, Flag.closed),
    });
  }
  return nodes;
}
