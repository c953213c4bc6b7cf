import type { Asked, Changed, Changes, Forecast, NodeView, PathStep, SearchStatus, Told } from "../algorithm.js";
import { checkSeed, drawSeed } from "../draws.js";
import { invalidArgument, invalidOutcome } from "../errors.js";
import { bookStatus, collect, TrialBook } from "../trial-book.js";
import { checkSerialisedTree, TREE_FORMAT } from "./check-data.js";
import { resolveTreeOptions, type TreeOptions } from "./config.js";
import { forecastTree } from "./forecast.js";
import { blockOf, capOf, choose, chooseAction, reserve, take } from "./issue.js";
import { backUp, closeUpwards, countInFlight, mergeLost, mergeRejected, mergeStep } from "./merge.js";
import { type RecordedStep, recordStep, type TreeOutcome, type TreeTrial } from "./outcome.js";
import type { TreePolicy } from "./policy.js";
import { dropSubtree, moveRoot } from "./prune.js";
import type { SerialisedTree, TreeRecord, TreeState } from "./state.js";
import { createTree, Flag, Kind, NONE, Tree } from "./tree.js";
import type { TreeSearch } from "./tree-algorithm.js";
import { type ActionStatistics, bestChild, nodePath, rootStatistics, viewNode } from "./view.js";

/** A search over trees, by the functions that make it what it is. */
export function createTreeSearch<Options extends TreeOptions, Params>(
  policy: TreePolicy<Options, Params>,
): TreeSearch<Options, Params> {
  return new TreeSearchImpl(policy);
}

interface MutableChanges {
  merged: number[];
  accepted: NodeView[];
  released: string[];
}

class TreeSearchImpl<Options extends TreeOptions, Params> implements TreeSearch<Options, Params> {
  readonly name: string;
  readonly #policy: TreePolicy<Options, Params>;

  constructor(policy: TreePolicy<Options, Params>) {
    this.name = policy.name;
    this.#policy = policy;
  }

  init(options: Options, seed: number): TreeState<Params> {
    const { defaults = {}, optionNames } = this.#policy;
    const filled = { ...defaults, ...options };
    const config = resolveTreeOptions(filled, optionNames);
    const params = Object.freeze(this.#policy.resolve(filled, config));
    const state = this.#state({ config, params, seed: checkSeed(seed), tree: createTree(), book: new TrialBook() });
    openRoot(state);
    return state;
  }

  ask(state: TreeState<Params>, count: number): Asked<TreeState<Params>, TreeTrial> {
    const changes = noChanges();
    const records = collect(count, () => state.book.retry() ?? this.#issue(state, changes));
    const trials = records.map((record) => toTrial(state, record));
    this.#advance(state, changes);
    return { state, trials, changes };
  }

  tell(state: TreeState<Params>, trial: number, attempt: number, outcome: TreeOutcome): Told<TreeState<Params>> {
    const changes = noChanges();
    const record = state.book.find(trial, attempt);
    if (record === null) {
      const checkpoint = outcome.kind === "value" ? outcome.checkpoint : undefined;
      if (typeof checkpoint === "string" && !isHeld(state, checkpoint)) changes.released.push(checkpoint);
      return { state, changes, verdict: "ignored" };
    }
    if (settle(state, record, outcome) === "waiting") return { state, changes, verdict: "retry" };
    this.#advance(state, changes);
    return { state, changes, verdict: changes.merged.includes(trial) ? "merged" : "held" };
  }

  finish(state: TreeState<Params>): Changed<TreeState<Params>> {
    const changes = noChanges();
    state.book.close();
    this.#advance(state, changes);
    return { state, changes };
  }

  outstanding(state: TreeState<Params>): readonly TreeTrial[] {
    return state.book.open.filter(({ phase }) => phase === "running").map((record) => toTrial(state, record));
  }

  status(state: TreeState<Params>): SearchStatus {
    const block = blockOf(state) ?? (choose(this.#policy, state) === null ? "nothing-to-choose" : null);
    return { ...bookStatus(state.book, block), steps: state.steps };
  }

  best(state: TreeState<Params>): NodeView {
    return viewNode(state, bestChild(this.#policy, state));
  }

  actions(state: TreeState<Params>): readonly ActionStatistics[] {
    return rootStatistics(this.#policy, state);
  }

  path(state: TreeState<Params>, node: number): readonly PathStep[] {
    return nodePath(state, checkNode(state, node));
  }

  node(state: TreeState<Params>, node: number): NodeView {
    return viewNode(state, checkNode(state, node));
  }

  forecast(state: TreeState<Params>, count: number): readonly Forecast[] {
    const mayAsk = capOf(state) === null;
    return forecastTree(state, checkCount(count), () => (mayAsk ? chooseAction(this.#policy, state) : null));
  }

  advanceRoot(state: TreeState<Params>, node: number): Changed<TreeState<Params>> {
    const { tree } = state;
    const at = tree.state(checkNode(state, node));
    if (at === tree.root) return { state, changes: noChanges() };
    if (tree.kind(at) !== Kind.open || tree.has(at, Flag.chance))
      throw invalidArgument("node", node, "a state that has been evaluated and has not ended");
    state.rootReward = viewNode(state, at).reward;
    const changes = { ...noChanges(), released: moveRoot(state, at) };
    this.#policy.changed?.(state, null);
    this.#advance(state, changes);
    return { state, changes };
  }

  drop(state: TreeState<Params>, node: number): Changed<TreeState<Params>> {
    const changes = { ...noChanges(), released: dropSubtree(state, checkNode(state, node)) };
    this.#policy.changed?.(state, null);
    this.#advance(state, changes);
    return { state, changes };
  }

  serialise(state: TreeState<Params>): SerialisedTree {
    return {
      format: TREE_FORMAT,
      algorithm: state.algorithm,
      config: structuredClone(state.config),
      params: structuredClone(state.params),
      seed: state.seed,
      tree: state.tree.toData(),
      book: state.book.toData(),
      continuing: structuredClone(state.continuing),
      range: state.range === null ? null : { ...state.range },
      simulations: state.simulations,
      steps: state.steps,
      rootReward: state.rootReward,
      knownInARow: state.knownInARow,
    };
  }

  restore(serialised: unknown): TreeState<Params> {
    const data = checkSerialisedTree(serialised, this.name);
    const { config, seed, range, simulations, steps, rootReward, knownInARow } = data;
    const tree = new Tree(data.tree);
    const params = data.params as Params;
    const state = this.#state({ config, params, seed, tree, book: new TrialBook(data.book) });
    state.continuing.push(...structuredClone(data.continuing));
    state.range = range === null ? null : { ...range };
    state.simulations = simulations;
    state.steps = steps;
    state.rootReward = rootReward;
    state.knownInARow = knownInARow;
    for (let node = 0; node < tree.size; node += 1) {
      const checkpoint = tree.checkpoint(node);
      if (checkpoint !== null && checkpoint !== config.root.checkpoint) state.held.add(checkpoint);
      const key = tree.key(node);
      if (config.transpositions && key !== null) state.nodeOfKey.set(key, node);
    }
    for (const { outcome } of state.book.open)
      if (outcome?.kind === "value" && outcome.checkpoint !== null) state.held.add(outcome.checkpoint);
    return state;
  }

  #state(given: Given<Params>): TreeState<Params> {
    return {
      algorithm: this.name,
      ...given,
      held: new Set(),
      continuing: [],
      nodeOfKey: new Map(),
      range: null,
      simulations: 0,
      steps: 0,
      rootReward: 0,
      knownInARow: 0,
      isStuck: false,
    };
  }

  #issue(state: TreeState<Params>, changes: MutableChanges): TreeRecord | null {
    for (;;) {
      this.#advance(state, changes);
      if (blockOf(state) !== null) return null;
      const chosen = choose(this.#policy, state);
      if (chosen === null) {
        state.isStuck = true;
        if (state.book.head?.phase !== "settled") return null;
      } else if (chosen.descent.kind === "action") {
        return reserve(this.#policy, state, chosen, chosen.descent);
      } else {
        state.knownInARow += 1;
        const { path, rewards } = take(state, chosen);
        countInFlight(state, path, -1);
        backUp(this.#policy, state, { path, rewards });
      }
    }
  }

  /**
   * Merges what may be merged. Trial k is chosen when exactly the trials up to k - window are merged, no matter how many more are
   * known; only where nothing can be chosen are more merged, one at a time. So the tree depends on the results and not on when they
   * arrive, and sums of doubles are always made in one order.
   */
  #advance(state: TreeState<Params>, changes: MutableChanges): void {
    const { book, config } = state;
    for (const { record, outcome } of book.due(config.window, () => state.isStuck || capOf(state) !== null)) {
      state.isStuck = false;
      state.knownInARow = 0;
      changes.merged.push(record.id);
      if (outcome.kind === "lost") mergeLost(state, record);
      else if (outcome.kind === "rejected") mergeRejected(state, record);
      else this.#mergeStep(state, record, outcome, changes);
      this.#policy.changed?.(state, record.path.length === 0 ? null : record.from);
    }
    if (book.open.length === 0 && state.continuing.length > 0 && capOf(state) !== null) this.#endContinuing(state);
  }

  /** Simulations that a cap keeps from going on end where they are, with what that state is worth. */
  #endContinuing(state: TreeState<Params>): void {
    for (const line of state.continuing.splice(0)) {
      countInFlight(state, line.path, -1);
      backUp(this.#policy, state, line);
    }
  }

  #mergeStep(state: TreeState<Params>, record: TreeRecord, step: RecordedStep, changes: MutableChanges): void {
    const node = mergeStep(this.#policy, state, record, step);
    if (node !== NONE) changes.accepted.push(viewNode(state, node));
    const { checkpoint } = step;
    if (checkpoint === null || (node !== NONE && state.tree.checkpoint(node) === checkpoint)) return;
    state.held.delete(checkpoint);
    changes.released.push(checkpoint);
  }
}

type Given<Params> = Pick<TreeState<Params>, "config" | "params" | "seed" | "tree" | "book">;

function openRoot(state: TreeState): void {
  const { tree, config } = state;
  const { actions, priors, value, player, key, checkpoint } = config.root;
  const { columns, root } = tree;
  columns.kind.set(root, Kind.open);
  columns.raw.set(root, value ?? 0);
  columns.value.set(root, value ?? 0);
  // A root with a value has been evaluated: that is its first visit.
  columns.visits.set(root, value === null ? 0 : 1);
  if (player === 1) tree.raise(root, Flag.second);
  tree.setActions(root, actions, priors);
  tree.setKey(root, key);
  tree.setCheckpoint(root, checkpoint);
  if (config.transpositions && key !== null) state.nodeOfKey.set(key, root);
  closeUpwards(state, [root]);
}

function settle(state: TreeState, record: TreeRecord, outcome: TreeOutcome): "waiting" | "settled" {
  const { book, config } = state;
  switch (outcome.kind) {
    case "infrastructure-failure":
      return book.fail(record, config.maxAttempts) ? "waiting" : "settled";
    case "rejected":
      book.settle(record, { kind: "rejected" });
      return "settled";
    case "value": {
      const isProposal = record.action === null;
      const step = recordStep(outcome, { config, isProposal, isHeld: (name) => isHeld(state, name) });
      if (step.checkpoint !== null) state.held.add(step.checkpoint);
      book.settle(record, step);
      return "settled";
    }
    default: {
      const { kind } = outcome as { readonly kind?: unknown };
      throw invalidOutcome("kind", kind, "value, infrastructure-failure or rejected");
    }
  }
}

function toTrial({ tree, seed }: TreeState, { id, attempt, from, action, notes }: TreeRecord): TreeTrial {
  const start = {
    node: from,
    checkpoint: tree.checkpoint(from),
    key: tree.key(from),
    depth: tree.columns.depth.get(from),
  };
  return { id, attempt, from: start, action, notes: [...notes], seed: drawSeed(seed, "trial", id) };
}

function isHeld({ config, held }: TreeState, checkpoint: string): boolean {
  return checkpoint === config.root.checkpoint || held.has(checkpoint);
}

function checkNode({ tree }: TreeState, node: number): number {
  const isLive = Number.isInteger(node) && node >= 0 && node < tree.size && tree.kind(node) !== Kind.free;
  if (!isLive) throw invalidArgument("node", node, "a node of the tree");
  return node;
}

function checkCount(count: number): number {
  if (!Number.isInteger(count) || count < 0) throw invalidArgument("count", count, "an integer of at least 0");
  return count;
}

function noChanges(): MutableChanges {
  return { merged: [], accepted: [], released: [] } satisfies Changes;
}
