/** Latencies with nothing else going on: one operation at a time, as a client sees them. */

import type { Checkpoint, Host, Sandbox, Template } from "../../sandbox-pool/index.js";
import { LatencyHistogram, type LatencySummary } from "../scheduler/latency.js";

export interface ProbeResult {
  /** From the call that hands out a child that has run ahead, to its answer to a ping. */
  readonly fork: LatencySummary;
  /** The same for a child that is made on demand. */
  readonly coldFork: LatencySummary;
  readonly park: LatencySummary;
  /** `true` in a guest that runs. */
  readonly exec: LatencySummary;
  /** Everything that one idle child adds to the host. */
  readonly childBytes: number;
}

export interface ProbeOptions {
  readonly host: Host;
  readonly template: Template;
  readonly rounds: number;
  readonly signal: AbortSignal;
}

/** How long to wait for a child to be forked ahead. */
const READY_WAIT_MS = 5_000;
/** Between two looks whether one is ready. */
const READY_POLL_MS = 10;

export async function probeLatency({ host, template, rounds, signal }: ProbeOptions): Promise<ProbeResult> {
  const [fork, coldFork, park, exec] = Array.from({ length: 4 }, () => new LatencyHistogram());
  let childBytes = 0;
  for (let round = 0; round < rounds; round++) {
    await waitForChild(host, template, signal);
    const warm = await timedFork(host, template, signal);
    await using sandbox = warm.sandbox;
    (warm.isWarm ? fork : coldFork)?.add(warm.microseconds);
    if (round === 0) childBytes = (await host.memoryUsage({ sandbox: sandbox.id }, { signal })).totalBytes;
    await timed(exec, () => sandbox.exec(["true"], { signal }));
    const checkpoint = await timed(park, () => sandbox.park({ signal }));
    const cold = await timedFork(host, checkpoint, signal);
    (cold.isWarm ? fork : coldFork)?.add(cold.microseconds);
    await cold.sandbox.close();
    await checkpoint.release();
  }
  const summary = (histogram: LatencyHistogram | undefined): LatencySummary =>
    (histogram ?? new LatencyHistogram()).summary();
  return { fork: summary(fork), coldFork: summary(coldFork), park: summary(park), exec: summary(exec), childBytes };
}

interface TimedFork {
  readonly sandbox: Sandbox;
  readonly isWarm: boolean;
  readonly microseconds: number;
}

async function timedFork(host: Host, checkpoint: Checkpoint, signal: AbortSignal): Promise<TimedFork> {
  const { hits } = host.pool.stats();
  const begin = performance.now();
  const sandbox = await checkpoint.fork({ signal });
  await sandbox.ping({ signal });
  const microseconds = microsecondsSince(begin);
  return { sandbox, isWarm: host.pool.stats().hits > hits, microseconds };
}

async function waitForChild(host: Host, template: Template, signal: AbortSignal): Promise<void> {
  host.pool.forecast(template.id, 2);
  const deadline = performance.now() + READY_WAIT_MS;
  // With nothing else going on: not while another child is being made either.
  const isSettled = (): boolean => host.pool.ready(template.id) > 0 && host.pool.stats().preparing === 0;
  while (!isSettled() && performance.now() < deadline) {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
  }
}

async function timed<T>(histogram: LatencyHistogram | undefined, work: () => Promise<T>): Promise<T> {
  const begin = performance.now();
  const result = await work();
  histogram?.add(microsecondsSince(begin));
  return result;
}

function microsecondsSince(begin: number): number {
  return (performance.now() - begin) * 1_000;
}
