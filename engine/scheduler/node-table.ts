/** What the engine keeps for each node of the search: how to get back to it. */

import type { NodeView, RolloutTrial } from "../../search/index.js";
import type { Json } from "../json.js";
import type { RecordedStep, RunLedger } from "../ledger/ledger.js";
import type { RolloutStart, Visit } from "../workers/protocol.js";
import type { CheckpointStore } from "./checkpoint-store.js";

interface NodeRecord {
  readonly node: number;
  /** The trial that found it and the index of its visit; null for the root. */
  readonly found: { readonly trial: number; readonly index: number } | null;
  /** null where the environment has ended there. */
  readonly checkpoint: string | null;
  readonly length: number;
  readonly rewardSum: number;
  readonly landmarks: Readonly<Record<string, string>>;
  /** Kept while trials may start here; the ledger has it in any case. */
  observation: Json | undefined;
}

interface TrialStart {
  readonly node: number;
  readonly length: number;
  readonly landmarks: Readonly<Record<string, string>>;
}

export interface StartPlan {
  readonly start: RolloutStart;
  /** Names of checkpoints that must stay while the trial runs. */
  readonly pins: readonly string[];
}

/** One step of a node's path. */
export interface TrajectoryStep extends RecordedStep {
  readonly trial: number;
  readonly index: number;
}

export const ROOT_CHECKPOINT = "root";
const ROOT_NODE = 0;

export class NodeTable {
  readonly #ledger: RunLedger;
  readonly #checkpoints: CheckpointStore;
  readonly #nodes = new Map<number, NodeRecord>();
  /** Found visits of (trial, index), for finding checkpoints on a path. */
  readonly #byVisit = new Map<string, NodeRecord>();
  readonly #byName = new Map<string, NodeRecord>();
  readonly #starts = new Map<number, TrialStart>();

  constructor(ledger: RunLedger, checkpoints: CheckpointStore, seen: Pick<NodeRecord, "observation" | "landmarks">) {
    this.#ledger = ledger;
    this.#checkpoints = checkpoints;
    const root: NodeRecord = {
      node: ROOT_NODE,
      found: null,
      checkpoint: ROOT_CHECKPOINT,
      length: 0,
      rewardSum: 0,
      observation: seen.observation,
      landmarks: seen.landmarks,
    };
    this.#nodes.set(ROOT_NODE, root);
    this.#byName.set(ROOT_CHECKPOINT, root);
  }

  recordTrial(trial: RolloutTrial): void {
    const { landmarks } = this.#node(trial.from.node);
    this.#starts.set(trial.id, { node: trial.from.node, length: trial.from.length, landmarks });
  }

  landmarksAtStart(trial: number): Readonly<Record<string, string>> {
    return this.#start(trial).landmarks;
  }

  accept(view: NodeView, visits: readonly Visit[]): void {
    if (view.trial === null) return;
    const index = view.length - this.#start(view.trial).length - 1;
    const record: NodeRecord = {
      node: view.node,
      found: { trial: view.trial, index },
      checkpoint: view.checkpoint,
      length: view.length,
      rewardSum: view.reward,
      observation: visits[index]?.observation,
      landmarks: visits[index]?.landmarks ?? {},
    };
    this.#nodes.set(view.node, record);
    this.#byVisit.set(`${view.trial}.${index}`, record);
    if (view.checkpoint !== null) this.#byName.set(view.checkpoint, record);
  }

  /** The search starts nothing from the checkpoint of that name any more. */
  forget(name: string): void {
    const record = this.#byName.get(name);
    if (record === undefined) return;
    record.observation = undefined;
    this.#byName.delete(name);
  }

  distrust(node: number): void {
    const record = this.#node(node);
    // There is nothing behind the root to derive it from.
    if (record.found === null || record.checkpoint === null) return;
    this.#checkpoints.lost(record.checkpoint);
  }

  checkpointOf(node: number): string {
    return this.#node(node).checkpoint ?? "";
  }

  observationOf(node: number): Json {
    const record = this.#node(node);
    if (record.observation !== undefined) return record.observation;
    return this.trajectory(node).at(-1)?.observation ?? null;
  }

  /** How a trial gets to its start: from the node's checkpoint, or by replay from the nearest one before it. */
  plan(trial: RolloutTrial): StartPlan {
    const target = this.#node(trial.from.node);
    const own = target.checkpoint ?? "";
    const parked = this.#checkpoints.hot(own);
    if (parked !== undefined && target.observation !== undefined) {
      const { observation, length, rewardSum } = target;
      const start = {
        checkpoint: parked.id,
        dirtyPages: parked.dirtyPages,
        observation,
        replay: [],
        length,
        rewardSum,
      };
      return { start, pins: [own] };
    }
    return this.#planReplay(target, own);
  }

  /** From the root's first step to the node. */
  trajectory(node: number): readonly TrajectoryStep[] {
    const segments: TrajectoryStep[][] = [];
    for (let at = this.#node(node); at.found !== null; ) {
      const { trial, index } = at.found;
      const steps = this.#ledger.steps(trial, 0, index + 1);
      segments.unshift(steps.map((step, position) => ({ ...step, trial, index: position })));
      at = this.#node(this.#start(trial).node);
    }
    return segments.flat();
  }

  #planReplay(target: NodeRecord, own: string): StartPlan {
    const steps = this.trajectory(target.node);
    let first = 0;
    let base = this.#node(ROOT_NODE);
    for (const [position, { trial, index }] of steps.slice(0, -1).entries()) {
      const record = this.#byVisit.get(`${trial}.${index}`);
      if (record === undefined || record.checkpoint === null) continue;
      if (this.#checkpoints.hot(record.checkpoint) !== undefined) [first, base] = [position + 1, record];
    }
    const name = base.checkpoint ?? ROOT_CHECKPOINT;
    const parked = this.#checkpoints.hot(name);
    if (parked === undefined) throw new Error("the root has no checkpoint");
    const start: RolloutStart = {
      checkpoint: parked.id,
      dirtyPages: parked.dirtyPages,
      observation: first === 0 ? (this.#node(ROOT_NODE).observation ?? null) : (steps[first - 1]?.observation ?? null),
      replay: steps.slice(first).map(({ action, digest }) => ({ action, digest })),
      length: target.length,
      rewardSum: target.rewardSum,
    };
    return { start, pins: [own, name] };
  }

  #node(node: number): NodeRecord {
    const record = this.#nodes.get(node);
    if (record === undefined) throw new Error(`node ${node} was never accepted`);
    return record;
  }

  #start(trial: number): TrialStart {
    const start = this.#starts.get(trial);
    if (start === undefined) throw new Error(`trial ${trial} was never told`);
    return start;
  }
}
