import { beforeEach, describe, expect, it } from "vitest";

import type { Checkpoint } from "../../sandbox-pool/index.js";
import { CheckpointStore } from "./checkpoint-store.js";

let dropped: string[];
let store: CheckpointStore;

beforeEach(() => {
  dropped = [];
  const get = (id: string): Checkpoint =>
    ({
      release: async () => {
        dropped.push(id);
      },
    }) as Partial<Checkpoint> as Checkpoint;
  store = new CheckpointStore({ checkpoints: { get } });
});

function parked(id: string): { id: string; dirtyPages: number } {
  return { id, dirtyPages: 1 };
}

describe("checkpoints of a run", () => {
  it("that are released are dropped once, also when they are released twice", () => {
    store.add("a", parked("host-a"));
    store.release("a");
    store.release("a");
    expect(dropped).toEqual(["host-a"]);
    expect(store.counts).toEqual({ taken: 1, pruned: 1, evicted: 0, hot: 0 });
  });

  it("that a trial starts from stay until it has ended, though they were released (invariant 9)", () => {
    store.add("a", parked("host-a"));
    store.pin("a");
    store.pin("a");
    store.release("a");
    store.unpin("a");
    expect(dropped).toEqual([]);
    store.unpin("a");
    expect(dropped).toEqual(["host-a"]);
  });

  it("that were evicted become hot again when they are derived", () => {
    store.add("a", parked("host-a"));
    store.evict("a");
    expect(store.hot("a")).toBeUndefined();
    store.derived("a", parked("host-a2"));
    expect(store.hot("a")?.id).toBe("host-a2");
    expect(store.counts).toEqual({ taken: 2, pruned: 0, evicted: 1, hot: 1 });
  });

  it("that two trials derive at once are kept once", () => {
    store.add("a", parked("host-a"));
    store.evict("a");
    store.derived("a", parked("first"));
    store.derived("a", parked("second"));
    expect(dropped).toEqual(["host-a", "second"]);
    expect(store.counts).toEqual({ taken: 3, pruned: 1, evicted: 1, hot: 1 });
  });

  it("that a trial uses are not evicted", () => {
    store.add("a", parked("host-a"));
    store.pin("a");
    store.evict("a");
    expect(store.hot("a")?.id).toBe("host-a");
    expect(store.evictable).toEqual([]);
  });

  it("that are left at the end are all dropped, and the counts still say what was hot", async () => {
    store.add("a", parked("host-a"));
    store.add("b", parked("host-b"));
    await store.releaseAll();
    expect(dropped).toEqual(["host-a", "host-b"]);
    expect(store.counts.hot).toBe(2);
  });
});
