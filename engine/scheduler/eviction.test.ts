import { describe, expect, it } from "vitest";

import type { Checkpoint, HostStats } from "../../sandbox-pool/index.js";
import type { Forecast } from "../../search/index.js";
import { CheckpointStore } from "./checkpoint-store.js";
import { Eviction } from "./eviction.js";
import { ROOT_CHECKPOINT } from "./node-table.js";

const release = async (): Promise<void> => {};

function storeOf(names: readonly string[]): CheckpointStore {
  const get = (): Checkpoint => ({ release }) as Partial<Checkpoint> as Checkpoint;
  const store = new CheckpointStore({ checkpoints: { get } });
  for (const name of names) store.add(name, { id: `host-${name}`, dirtyPages: 1 });
  return store;
}

interface Situation {
  readonly store: CheckpointStore;
  readonly likely: readonly string[];
  readonly limit: number;
  /** Share of the host's memory that is available. */
  readonly available: number;
}

function evictionOf({ store, likely, limit, available }: Situation): Eviction {
  const memory = { totalBytes: 1_000, availableBytes: 1_000 * available };
  const forecast = (): Forecast[] => likely.map((checkpoint, node) => ({ node, checkpoint, weight: 0.1 }));
  const stats = async (): Promise<HostStats> => ({ memory }) as Partial<HostStats> as HostStats;
  return new Eviction({ host: { stats }, driver: { forecast }, checkpoints: store, limit });
}

function hotOf(store: CheckpointStore, names: readonly string[]): readonly string[] {
  return names.filter((name) => store.hot(name) !== undefined);
}

describe("eviction", () => {
  const names = [ROOT_CHECKPOINT, "a", "b", "c", "d"];

  it("above the limit takes what the search is least likely to start from, and never the root", () => {
    const store = storeOf(names);
    evictionOf({ store, likely: ["d", "b"], limit: 4, available: 1 }).check();
    expect(hotOf(store, names)).toEqual([ROOT_CHECKPOINT, "b", "d"]);
  });

  it("with memory enough and below the limit takes nothing", async () => {
    const store = storeOf(names);
    evictionOf({ store, likely: [], limit: 100, available: 1 }).check();
    await new Promise((resolve) => setImmediate(resolve));
    expect(store.counts.evicted).toBe(0);
  });

  it("on a host that is short of memory takes a share, the least likely first", async () => {
    const store = storeOf(names);
    evictionOf({ store, likely: ["a", "b", "c"], limit: 100, available: 0.05 }).check();
    await new Promise((resolve) => setImmediate(resolve));
    expect(hotOf(store, names)).toEqual([ROOT_CHECKPOINT, "a", "b", "c"]);
  });

  it("spares what trials under way start from", () => {
    const store = storeOf(names);
    for (const name of ["a", "b", "c"]) store.pin(name);
    evictionOf({ store, likely: ["d"], limit: 1, available: 1 }).check();
    expect(hotOf(store, names)).toEqual([ROOT_CHECKPOINT, "a", "b", "c"]);
  });
});
