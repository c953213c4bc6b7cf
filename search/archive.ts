import type { NodeView, PathStep } from "./algorithm.js";
import { type CellKnowledge, KnowledgeTable, type KnownCells } from "./cell-knowledge.js";
import { Column } from "./column.js";
import type { ArchiveConfig } from "./config.js";
import type { CountWeight } from "./defaults.js";
import { type LandmarkData, LandmarkTable } from "./landmarks.js";
import { NameTable } from "./name-table.js";
import { ScoreRanks } from "./score-ranks.js";
import { SumTree } from "./sum-tree.js";

/** The one cell of all states in which the environment has ended. It is never chosen. */
export const DONE_CELL = 0;
export const ROOT_CELL = 1;
export const ROOT_NODE = 0;
export const NO_NODE = -1;
const NO_TRIAL = -1;

export const CELL_FIELDS = [
  /** The node that represents the cell; `NO_NODE` where it was seen and nothing was kept. */
  "node",
  "seen",
  "chosen",
  "actions",
  "chosenSinceNew",
  /** Trials asked from here and not merged. */
  "inFlight",
  /** The trial, and the count of merged steps, at which it was first seen. */
  "foundTrial",
  "foundStep",
] as const;
export const NODE_FIELDS = [
  "parent",
  "cell",
  "score",
  "reward",
  "length",
  "trial",
  /** The node that represented the cell before. */
  "replaced",
  /** 1 while it represents its cell, and 1 for each trial that starts here and is not merged. */
  "holds",
  /** End of its part of the path actions; the part begins where that of the node before ends. */
  "pathEnd",
] as const;

/** One column a field; the index is the cell. */
export type CellColumns = Readonly<Record<(typeof CELL_FIELDS)[number], Column>>;
/** One column a field; the index is the node. Nodes are only added, in the order of the trials that found them. */
export type NodeColumns = Readonly<Record<(typeof NODE_FIELDS)[number], Column>>;

export interface ArchiveData {
  readonly cellKeys: readonly string[];
  readonly cells: Readonly<Record<(typeof CELL_FIELDS)[number], readonly number[]>>;
  readonly nodes: Readonly<Record<(typeof NODE_FIELDS)[number], readonly number[]>>;
  readonly checkpoints: readonly (string | null)[];
  readonly actionNames: readonly string[];
  readonly pathActions: readonly number[];
  readonly landmarks: readonly LandmarkData[];
  readonly steps: number;
  readonly best: number;
  /** By node, in their order; only where there are any, so that states without have not changed. */
  readonly samples?: readonly (readonly [node: number, sample: string])[];
  readonly verified?: readonly (readonly [node: number, command: string])[];
  /** By cell; the same. */
  readonly knowledge?: readonly (readonly [cell: number, knowledge: CellKnowledge])[];
}

export interface NewNode {
  readonly parent: number;
  readonly cell: number;
  readonly score: number;
  readonly reward: number;
  readonly length: number;
  readonly trial: number;
  readonly checkpoint: string | null;
  /** From the parent to this node. */
  readonly actions: readonly string[];
  readonly sample: string | null;
  readonly verified: string | null;
}

/** The cells that were found, the tree of nodes that represent or once represented them, and how likely each is chosen. */
export class Archive {
  readonly cells: CellColumns;
  readonly nodes: NodeColumns;
  readonly landmarks: LandmarkTable;
  /** What the cell of a node was computed from, where that is not its key. */
  readonly samples: Map<number, string>;
  /** The command that showed the score of a node to be true, where there was one. */
  readonly verified: Map<number, string>;
  /** Environment steps merged so far. */
  steps: number;
  readonly #config: ArchiveConfig;
  /** Keys of the cells from `ROOT_CELL` on. */
  readonly #cellKeys: NameTable;
  readonly #checkpoints: (string | null)[];
  readonly #actionNames: NameTable;
  readonly #pathActions: Column;
  readonly #weights = new SumTree();
  /** null where the weights make no use of it. */
  readonly #ranks: ScoreRanks | null;
  /** null where the weights make no use of it. */
  readonly #knowledge: KnowledgeTable | null;
  #best: number;

  constructor(config: ArchiveConfig, data: ArchiveData) {
    this.#config = config;
    this.#cellKeys = new NameTable(data.cellKeys);
    this.cells = toColumns(CELL_FIELDS, data.cells);
    this.nodes = toColumns(NODE_FIELDS, data.nodes);
    this.#checkpoints = [...data.checkpoints];
    this.#actionNames = new NameTable(data.actionNames);
    this.#pathActions = new Column(data.pathActions);
    this.landmarks = new LandmarkTable(data.landmarks);
    this.samples = new Map(data.samples);
    this.verified = new Map(data.verified);
    this.steps = data.steps;
    this.#best = data.best;
    this.#ranks = config.weights.scoreHigh > 0 ? new ScoreRanks() : null;
    const { knowledge } = config.weights;
    this.#knowledge =
      knowledge === undefined ? null : new KnowledgeTable(knowledge, this.#knownCells(), data.knowledge ?? []);
    for (let cell = 0; cell < this.cellCount; cell += 1) {
      const node = this.cells.node.get(cell);
      if (cell !== DONE_CELL && node !== NO_NODE) this.#ranks?.add(this.nodes.score.get(node));
      this.#weights.push(0);
    }
    this.#reweighAll();
  }

  /** Cells seen, `DONE_CELL` included. */
  get cellCount(): number {
    return this.cells.node.length;
  }

  get nodeCount(): number {
    return this.nodes.parent.length;
  }

  /** Greatest score, then shortest, then found first. */
  get best(): number {
    return this.#best;
  }

  get totalWeight(): number {
    return this.#weights.total;
  }

  weight(cell: number): number {
    return this.#weights.get(cell);
  }

  /** The cell on which `uniform` in [0, 1) falls, or -1 if no cell can be chosen. */
  choose(uniform: number): number {
    return this.#weights.find(uniform);
  }

  key(cell: number): string | null {
    return cell === DONE_CELL ? null : this.#cellKeys.name(cell - 1);
  }

  findCell(key: string): number | undefined {
    const index = this.#cellKeys.find(key);
    return index === undefined ? undefined : index + 1;
  }

  /** The cell of a key, which is added if it is new. */
  internCell(key: string, trial: number): number {
    const cell = this.#cellKeys.intern(key) + 1;
    if (cell < this.cellCount) return cell;
    for (const field of CELL_FIELDS) this.cells[field].push(0);
    this.cells.node.set(cell, NO_NODE);
    this.cells.foundTrial.set(cell, trial);
    this.cells.foundStep.set(cell, this.steps);
    this.#weights.push(0);
    return cell;
  }

  /** What is known of a cell; the first telling counts. */
  noteKnowledge(cell: number, knowledge: CellKnowledge): void {
    if (cell === DONE_CELL || this.#knowledge === null) return;
    const changed = this.#knowledge.note(cell, knowledge);
    if (changed === "all") this.#reweighAll();
    else for (const affected of changed) this.reweigh(affected);
  }

  checkpoint(node: number): string | null {
    return this.#checkpoints[node] ?? null;
  }

  hold(node: number): void {
    this.nodes.holds.add(node, 1);
  }

  /** Returns the checkpoint that nobody needs any more, if this was the last hold. The root's is the caller's. */
  dropHold(node: number): string | null {
    this.nodes.holds.add(node, -1);
    if (this.nodes.holds.get(node) > 0 || node === ROOT_NODE) return null;
    const checkpoint = this.checkpoint(node);
    this.#checkpoints[node] = null;
    return checkpoint;
  }

  /** Adds a node and makes it represent its cell. The one that it replaces still has its hold. */
  addNode(node: NewNode): number {
    const index = this.nodeCount;
    const replaced = this.cells.node.get(node.cell);
    if (node.sample !== null) this.samples.set(index, node.sample);
    if (node.verified !== null) this.verified.set(index, node.verified);
    for (const action of node.actions) this.#pathActions.push(this.#actionNames.intern(action));
    const record = { ...node, replaced, holds: 1, pathEnd: this.#pathActions.length };
    for (const field of NODE_FIELDS) this.nodes[field].push(record[field]);
    this.#checkpoints.push(node.checkpoint);
    this.cells.node.set(node.cell, index);
    if (this.#isBetter(index, this.#best)) this.#best = index;
    if (node.cell !== DONE_CELL && this.#ranks !== null) {
      const isNew = this.#ranks.add(node.score);
      const isGone = replaced !== NO_NODE && this.#ranks.remove(this.nodes.score.get(replaced));
      if (isNew || isGone) this.#reweighAll();
    }
    this.#reweighDependents(node.cell);
    return index;
  }

  /** Whether a state with this score and length should represent the cell. */
  accepts(cell: number, score: number, length: number): boolean {
    const node = this.cells.node.get(cell);
    if (node === NO_NODE) return true;
    const known = { score: this.nodes.score.get(node), length: this.nodes.length.get(node) };
    return improves({ offered: { score, length }, known, optimiseScore: this.#config.optimiseScore });
  }

  /** To be called after anything that a cell's weight depends on has changed. */
  reweigh(cell: number): void {
    this.#weights.set(cell, this.#weigh(cell));
  }

  view(node: number): NodeView {
    const parent = this.nodes.parent.get(node);
    const trial = this.nodes.trial.get(node);
    return {
      node,
      parent: parent === NO_NODE ? null : parent,
      cell: this.key(this.nodes.cell.get(node)),
      score: this.nodes.score.get(node),
      reward: this.nodes.reward.get(node),
      length: this.nodes.length.get(node),
      trial: trial === NO_TRIAL ? null : trial,
      checkpoint: this.checkpoint(node),
    };
  }

  /** Actions from the node's parent to the node. */
  actions(node: number): string[] {
    const start = node === ROOT_NODE ? 0 : this.nodes.pathEnd.get(node - 1);
    const end = this.nodes.pathEnd.get(node);
    const actions: string[] = [];
    for (let at = start; at < end; at += 1) actions.push(this.#actionNames.name(this.#pathActions.get(at)));
    return actions;
  }

  path(node: number): PathStep[] {
    const line: number[] = [];
    for (let at = node; at !== ROOT_NODE; at = this.nodes.parent.get(at)) line.push(at);
    const steps: PathStep[] = [];
    for (const at of line.reverse()) {
      const actions = this.actions(at);
      for (const [index, action] of actions.entries())
        steps.push({ action, node: index === actions.length - 1 ? at : null });
    }
    return steps;
  }

  toData(): ArchiveData {
    return {
      cellKeys: this.#cellKeys.toArray(),
      cells: fromColumns(CELL_FIELDS, this.cells),
      nodes: fromColumns(NODE_FIELDS, this.nodes),
      checkpoints: [...this.#checkpoints],
      actionNames: this.#actionNames.toArray(),
      pathActions: this.#pathActions.toArray(),
      landmarks: this.landmarks.toData(),
      steps: this.steps,
      best: this.#best,
      ...(this.samples.size === 0 ? {} : { samples: [...this.samples] }),
      ...(this.verified.size === 0 ? {} : { verified: [...this.verified] }),
      ...(this.#knowledge === null ? {} : { knowledge: this.#knowledge.toData() }),
    };
  }

  #isBetter(node: number, other: number): boolean {
    const score = this.nodes.score.get(node) - this.nodes.score.get(other);
    if (score !== 0) return score > 0;
    return this.nodes.length.get(node) < this.nodes.length.get(other);
  }

  /** Of the cells that are weighed by what stands beside them, or by the scores of their place: the ones that this changes. */
  #reweighDependents(cell: number): void {
    const name = this.key(cell);
    if (name === null || this.#knowledge === null) return;
    for (const affected of this.#knowledge.scored(cell, name)) this.reweigh(affected);
  }

  #reweighAll(): void {
    for (let cell = 0; cell < this.cellCount; cell += 1) this.reweigh(cell);
  }

  #weigh(cell: number): number {
    const node = this.cells.node.get(cell);
    if (cell === DONE_CELL || node === NO_NODE) return 0;
    const needsCheckpoint = node !== ROOT_NODE && this.#config.policyReturn === undefined;
    if (needsCheckpoint && this.checkpoint(node) === null) return 0;
    if (this.nodes.length.get(node) >= this.#config.maxLength) return 0;
    const { seen, chosen, actions, chosenSinceNew, scoreHigh } = this.#config.weights;
    const inFlight = this.#config.countInFlight ? this.cells.inFlight.get(cell) : 0;
    const rank = this.#ranks === null ? 1 : this.#ranks.rank(this.nodes.score.get(node));
    const weight =
      scoreHigh / Math.sqrt(rank) +
      countTerm(seen, this.cells.seen.get(cell) + inFlight) +
      countTerm(chosen, this.cells.chosen.get(cell) + inFlight) +
      countTerm(actions, this.cells.actions.get(cell)) +
      countTerm(chosenSinceNew, this.cells.chosenSinceNew.get(cell) + inFlight);
    if (this.#knowledge === null) return weight;
    return (this.#knowledge.term(cell) + weight) * this.#knowledge.factor(cell);
  }

  #knownCells(): KnownCells {
    return {
      find: (name) => this.findCell(name),
      score: (cell) => {
        const node = this.cells.node.get(cell);
        return node === NO_NODE ? null : this.nodes.score.get(node);
      },
    };
  }
}

/** An archive that holds the root alone. */
export function createArchive(config: ArchiveConfig): Archive {
  const archive = new Archive(config, {
    cellKeys: [config.root.cell],
    cells: {
      node: [NO_NODE, ROOT_NODE],
      seen: [0, 0],
      chosen: [0, 0],
      actions: [0, 0],
      chosenSinceNew: [0, 0],
      inFlight: [0, 0],
      foundTrial: [NO_TRIAL, NO_TRIAL],
      foundStep: [0, 0],
    },
    nodes: {
      parent: [NO_NODE],
      cell: [ROOT_CELL],
      score: [config.root.score],
      reward: [0],
      length: [0],
      trial: [NO_TRIAL],
      replaced: [NO_NODE],
      holds: [1],
      pathEnd: [0],
    },
    checkpoints: [config.root.checkpoint],
    actionNames: [],
    pathActions: [],
    landmarks: [],
    steps: 0,
    best: ROOT_NODE,
  });
  archive.landmarks.note(config.root.landmarks, 0);
  if (config.root.knowledge !== undefined) archive.noteKnowledge(ROOT_CELL, config.root.knowledge);
  archive.reweigh(ROOT_CELL);
  if (config.root.sample !== undefined) archive.samples.set(ROOT_NODE, config.root.sample);
  return archive;
}

/** w / (count + 1)^p */
export function countTerm(term: CountWeight, count: number): number {
  if (term.weight === 0) return 0;
  // Division and square root are the same on every machine; a general power is not promised to be.
  if (term.power === 1) return term.weight / (count + 1);
  if (term.power === 0.5) return term.weight / Math.sqrt(count + 1);
  return term.weight / (count + 1) ** term.power;
}

export interface Standing {
  readonly score: number;
  readonly length: number;
}

interface Comparison {
  readonly offered: Standing;
  readonly known: Standing;
  readonly optimiseScore: boolean;
}

/** Greater score, or equal score and shorter; without `optimiseScore` shorter, whatever the score. */
export function improves({ offered, known, optimiseScore }: Comparison): boolean {
  if (!optimiseScore || offered.score === known.score) return offered.length < known.length;
  return offered.score > known.score;
}

function toColumns<Field extends string>(
  fields: readonly Field[],
  data: Readonly<Record<Field, readonly number[]>>,
): Record<Field, Column> {
  return Object.fromEntries(fields.map((field) => [field, new Column(data[field])])) as Record<Field, Column>;
}

function fromColumns<Field extends string>(
  fields: readonly Field[],
  columns: Readonly<Record<Field, Column>>,
): Record<Field, number[]> {
  return Object.fromEntries(fields.map((field) => [field, columns[field].toArray()])) as Record<Field, number[]>;
}
