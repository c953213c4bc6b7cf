/** Everything that passes between the scheduler and the worker threads. Plain data: it is cloned on the way. */

import type { FaultDomain, HostAddress } from "../../sandbox-pool/index.js";
import type { ArchiveDelta } from "../../search/index.js";
import type { Json } from "../json.js";
import type { PolicySpec } from "../policy/policy.js";

/** What all trials of one run share; a thread prepares it once and keeps it by `id`. */
export interface RunContext {
  readonly id: string;
  /** Holds a secret: keep it out of logs. */
  readonly address: HostAddress;
  /** URL of the environment module. */
  readonly environment: string;
  readonly policy: PolicySpec;
  /** Whether the search goes back to checkpoints; otherwise they only serve the evaluation. */
  readonly keepCheckpoints: boolean;
  /** Whether a greater score makes a longer way to a cell worth keeping. */
  readonly optimiseScore: boolean;
  readonly counters: SharedArrayBuffer;
}

export interface ReplayStep {
  readonly action: string;
  /** `digestOf` the observation that must come. */
  readonly digest: string;
}

export interface RolloutStart {
  readonly checkpoint: string;
  readonly dirtyPages: number;
  /** What was seen at the checkpoint. */
  readonly observation: Json;
  /** Steps from the checkpoint to the node that the trial starts from; empty where the node's own checkpoint is hot. */
  readonly replay: readonly ReplayStep[];
  /** Of the node: steps from the root, and rewards on the way. */
  readonly length: number;
  readonly rewardSum: number;
}

export interface RolloutTask {
  readonly trial: number;
  /** 0 for the first; results of an attempt that is not the current one are dropped. */
  readonly attempt: number;
  readonly start: RolloutStart;
  /** Environment steps to take at most. */
  readonly steps: number;
  /** Of the trial's draws; the same for every attempt. */
  readonly seed: number;
  /** Version of the archive to compare states with. */
  readonly version: number;
}

/** Leaves the host: the thread is about to end. */
export interface LeaveMessage {
  readonly leave: true;
}

/** What goes to a thread in one task. */
export interface RolloutMessage {
  readonly context: RunContext;
  readonly task: RolloutTask;
  /** What the thread does not know yet of the archive. */
  readonly known: ArchiveDelta;
  /** Carries `Interruption`s to the trial. */
  readonly port: import("node:worker_threads").MessagePort;
}

/** `stop`: end after the step under way and report. `abort`: end at once, nothing counts. */
export type Interruption = "stop" | "abort";

export interface ParkedCheckpoint {
  readonly id: string;
  readonly dirtyPages: number;
}

/** One environment step as it is recorded. */
export interface Visit {
  readonly action: string;
  readonly observation: Json;
  readonly digest: string;
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly cell: string;
  readonly landmarks: Readonly<Record<string, string>>;
  /** null where the state was not evaluated. */
  readonly score: number | null;
  /** Set where the state is a candidate for the archive and can be gone on from. */
  readonly checkpoint: ParkedCheckpoint | null;
}

/** Operations whose time is kept. */
export type TimedOperation = "fork" | "park" | "step" | "score";

/** Microseconds. */
export type LatencySamples = Readonly<Record<TimedOperation, readonly number[]>>;

export interface WireError {
  readonly message: string;
  readonly code: string;
  readonly faultDomain: FaultDomain;
  readonly retryable: boolean;
  readonly remedy: string;
}

export type RolloutOutcome =
  | {
      readonly ok: true;
      readonly visits: readonly Visit[];
      /** The start node's own checkpoint, where it was derived again. */
      readonly derived: ParkedCheckpoint | null;
      readonly replayed: number;
      readonly latency: LatencySamples;
    }
  | {
      readonly ok: false;
      /** `user`: the run can not go on. `infrastructure`: another attempt may do. */
      readonly fault: "user" | "infrastructure" | "aborted";
      readonly error: WireError;
      readonly latency: LatencySamples;
    };

/** `stale`: the thread is new and lacks earlier changes of the archive; it must be sent all of them. */
export type WorkerAnswer = RolloutOutcome | { readonly stale: true } | { readonly left: true };
