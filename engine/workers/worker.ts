/** Entry of a worker thread: joins the run's session on the host once, then runs trials. */

import { connectHost, type Host } from "../../sandbox-pool/index.js";
import { ArchiveReplica } from "../../search/index.js";
import type { Environment } from "../environment.js";
import type { Json } from "../json.js";
import { loadEnvironment } from "../run/environment-module.js";
import { Counters } from "./counters.js";
import { toWireError } from "./faults.js";
import type {
  Interruption,
  LeaveMessage,
  RolloutMessage,
  RolloutOutcome,
  RunContext,
  WorkerAnswer,
} from "./protocol.js";
import { rollOut } from "./rollout.js";
import { NO_SAMPLES } from "./stopwatch.js";

interface Prepared {
  readonly host: Host;
  readonly environment: Environment<Json>;
  readonly replica: ArchiveReplica;
  readonly counters: Counters;
}

const contexts = new Map<string, Promise<Prepared>>();

async function prepare(context: RunContext): Promise<Prepared> {
  const [host, environment] = await Promise.all([
    // What a trial forks it uses at once: there is nothing to gain from children that wait.
    connectHost({ join: context.address, pool: { maxReady: 0 } }),
    loadEnvironment(new URL(context.environment)),
  ]);
  return { host, environment, replica: new ArchiveReplica(), counters: new Counters(context.counters) };
}

function preparedFor(context: RunContext): Promise<Prepared> {
  const there = contexts.get(context.id);
  if (there !== undefined) return there;
  const made = prepare(context);
  contexts.set(context.id, made);
  // A failed start is tried again by the next trial.
  made.catch(() => contexts.delete(context.id));
  return made;
}

async function leave(): Promise<void> {
  const prepared = await Promise.allSettled(contexts.values());
  contexts.clear();
  await Promise.allSettled(prepared.map((one) => (one.status === "fulfilled" ? one.value.host.close() : undefined)));
}

export default async function work(message: RolloutMessage | LeaveMessage): Promise<WorkerAnswer> {
  if ("leave" in message) {
    await leave();
    return { left: true };
  }
  const { context, task, known, port } = message;
  const stop = new AbortController();
  const abort = new AbortController();
  port.on("message", (interruption: Interruption) => (interruption === "stop" ? stop : abort).abort());
  try {
    const { host, environment, replica, counters } = await preparedFor(context);
    if (known.from > Math.max(0, replica.version)) return { stale: true };
    replica.apply(known);
    const { policy, keepCheckpoints, optimiseScore } = context;
    const signals = { stop: stop.signal, abort: abort.signal };
    const tools = { host, environment, policy, replica, keepCheckpoints, optimiseScore, counters, ...signals };
    return await rollOut(task, tools);
  } catch (error) {
    return notStarted(error);
  } finally {
    port.close();
  }
}

function notStarted(error: unknown): RolloutOutcome {
  const wire = toWireError(error);
  return {
    ok: false,
    fault: wire.faultDomain === "user" ? "user" : "infrastructure",
    error: wire,
    latency: NO_SAMPLES,
  };
}
