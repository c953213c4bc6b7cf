import { describe, expect, it, vi } from "vitest";

import { FakeForkSource } from "../../test/fakes/fake-fork-source.js";
import type { WarmPoolOptions } from "../api.js";
import { CoppiceError } from "../errors.js";
import { type AcquireResult, createWarmPool, type Lease, type WarmPool } from "./warm-pool.js";

const CHECKPOINT = "cp-1";

interface Setup {
  readonly source: FakeForkSource;
  readonly pool: WarmPool;
}

function setUp(options: WarmPoolOptions = {}, delay?: () => number): Setup {
  const source = new FakeForkSource(delay === undefined ? {} : { delay });
  return { source, pool: createWarmPool({ source, options: { maxInFlight: 1_000, tickMs: 5, ...options } }) };
}

function leaseOf(result: AcquireResult | undefined): Lease {
  if (result?.ok !== true) {
    throw new Error("Expected a lease", { cause: result?.error });
  }
  return result.lease;
}

async function acquireOne(pool: WarmPool, signal?: AbortSignal): Promise<Lease> {
  const [result] = await pool.acquire(CHECKPOINT, 1, signal === undefined ? {} : { signal });
  return leaseOf(result);
}

/** A pool with `count` children waiting. */
async function warmed(count: number, options: WarmPoolOptions = {}): Promise<Setup> {
  const setup = setUp({ refillBatch: count, ...options });
  setup.pool.forecast(CHECKPOINT, count);
  await vi.waitFor(() => expect(setup.pool.stats().ready).toBe(count));
  return setup;
}

/** A small generator with a fixed seed, so that a failure can be run again. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("options", () => {
  it("given as undefined are the defaults", async () => {
    const { pool } = setUp({ maxLive: undefined, maxReady: undefined } as unknown as WarmPoolOptions);
    pool.forecast(CHECKPOINT, 1);
    await vi.waitFor(() => expect(pool.ready(CHECKPOINT)).toBe(1));
    expect((await acquireOne(pool)).isWarm).toBe(true);
  });
});

describe("acquire", () => {
  it("without waiting children forks, all missing ones in one call", async () => {
    const { pool, source } = setUp({ maxReady: 0 });
    const results = await pool.acquire(CHECKPOINT, 3);
    expect(results.map((result) => leaseOf(result).isWarm)).toEqual([false, false, false]);
    expect(source.calls).toEqual(["fork"]);
    expect(pool.stats()).toMatchObject({ hits: 0, misses: 3, leased: 3 });
  });

  it("of the checkpoint's own randomness takes no waiting child, which has been reseeded", async () => {
    const { pool } = await warmed(1);
    const [result] = await pool.acquire(CHECKPOINT, 1, { keepRandomness: true });
    expect(leaseOf(result).isWarm).toBe(false);
    expect(pool.stats()).toMatchObject({ ready: 1, hits: 0, misses: 1 });
  });

  it("of a replacement needs no room, and of unseeded children takes that of waiting ones", async () => {
    const { pool, source } = await warmed(1, { maxLive: 1, refillDelayMs: 60_000 });
    const [kept] = await pool.acquire(CHECKPOINT, 1, { keepRandomness: true, deadlineMs: 5_000 });
    expect(leaseOf(kept).isWarm).toBe(false);
    const [replaced] = await pool.acquire(CHECKPOINT, 1, { isReplacement: true, deadlineMs: 50 });
    expect(leaseOf(replaced).sandbox).not.toBe(leaseOf(kept).sandbox);
    await leaseOf(kept).release();
    expect(source.calls).toContain("close");
    await pool.drain();
  });

  it("puts the next refill off, so that a child's first work comes before the making of another", async () => {
    const { pool, source } = await warmed(2, { refillDelayMs: 60_000, lowWatermark: 1 });
    await acquireOne(pool);
    pool.forecast(CHECKPOINT, 4);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(source.calls.filter((call) => call === "forkAhead")).toHaveLength(1);
    await pool.drain();
  });

  it("with a forecast hands out children that wait, without a fork", async () => {
    const { pool, source } = await warmed(2);
    const calls = source.calls.length;
    const lease = await acquireOne(pool);
    expect(lease.isWarm).toBe(true);
    expect(source.calls.slice(calls, calls + 1)).toEqual(["lease"]);
    expect(pool.stats()).toMatchObject({ hits: 1, misses: 0, warmMicroseconds: [expect.any(Number)] });
  });

  it("of more than wait gives those and forks the rest", async () => {
    const { pool } = await warmed(2);
    const results = await pool.acquire(CHECKPOINT, 5);
    expect(results.map((result) => leaseOf(result).isWarm)).toEqual([true, true, false, false, false]);
  });

  it("of a waiting child does not wait for the host, and says when the child has begun", async () => {
    const { pool, source } = await warmed(2);
    const lease = await acquireOne(pool);
    expect(source.child(lease.sandbox).isWaiting).toBe(true);
    expect(lease.stages).toEqual([]);
    expect(await lease.begun).toEqual([["lease", 1]]);
    expect(source.child(lease.sandbox).isWaiting).toBe(false);
  });

  it("of a waiting child that can't begin says why, and counts it", async () => {
    const { pool, source } = await warmed(2);
    source.failures.lease.push(
      new CoppiceError("Has ended", { code: "SANDBOX_LOST", faultDomain: "host", remedy: "" }),
    );
    const lease = await acquireOne(pool);
    await expect(lease.begun).rejects.toMatchObject({ code: "SANDBOX_LOST" });
    expect(pool.stats()).toMatchObject({ hits: 1, discards: 1, leased: 1 });
    await lease.release();
    expect(source.alive).toBe(1);
  });

  it("gives no waiting child that has ended", async () => {
    const { pool, source } = await warmed(2);
    const [first, second] = [...source.children.keys()];
    pool.lost(second ?? "");
    pool.lost("unknown");
    expect(pool.ready(CHECKPOINT)).toBe(1);
    const lease = await acquireOne(pool);
    expect(lease).toMatchObject({ sandbox: first, isWarm: true });
    pool.lost(lease.sandbox);
    await vi.waitFor(() => expect(pool.stats()).toMatchObject({ discards: 1, leased: 1 }));
  });

  it("gives no child that had ended before the fork that made it was answered", async () => {
    const { pool, source } = setUp({ refillBatch: 2 }, () => 20);
    pool.forecast(CHECKPOINT, 2);
    await vi.waitFor(() => expect(pool.stats().preparing).toBe(2), { interval: 1 });
    // The host's news of a child's end may come before its answer to the fork.
    pool.lost("child-1");
    await vi.waitFor(() => expect(source.child("child-1").isClosed).toBe(true));
    expect(pool.stats()).toMatchObject({ discards: 1 });
    const leases = [await acquireOne(pool), await acquireOne(pool)];
    expect(leases.map(({ sandbox }) => sandbox)).not.toContain("child-1");
  });

  it("aborted while it forks rejects and leaves no child", async () => {
    const { pool, source } = setUp({ maxReady: 0 }, () => 5);
    const controller = new AbortController();
    const acquired = pool.acquire(CHECKPOINT, 2, { signal: controller.signal });
    controller.abort();
    await expect(acquired).rejects.toMatchObject({ code: "ABORTED" });
    expect(source.alive).toBe(0);
    expect(pool.stats().live).toBe(0);
  });

  it("aborted while a child is handed out closes that child", async () => {
    const { pool, source } = await warmed(1);
    const controller = new AbortController();
    const acquired = pool.acquire(CHECKPOINT, 1, { signal: controller.signal });
    controller.abort();
    await expect(acquired).rejects.toMatchObject({ code: "ABORTED" });
    await vi.waitFor(() => expect(source.alive).toBe(0));
  });

  it("on a failed fork says why for each child", async () => {
    const { pool, source } = setUp({ maxReady: 0 });
    source.failures.fork.push(
      new CoppiceError("Full", { code: "HOST_FULL", faultDomain: "host", retryable: true, remedy: "" }),
    );
    const results = await pool.acquire(CHECKPOINT, 2);
    expect(results).toEqual([
      { ok: false, error: expect.objectContaining({ code: "HOST_FULL" }) },
      { ok: false, error: expect.objectContaining({ code: "HOST_FULL" }) },
    ]);
    expect(pool.stats().live).toBe(0);
  });
});

describe("room", () => {
  it("B24: a fan-out above the limit waits, and ends with all children when room is made", async () => {
    const { pool, source } = setUp({ maxLive: 4, maxReady: 0 });
    const acquired = pool.acquire(CHECKPOINT, 10);
    const first = await pool.acquire("cp-2", 0);
    expect(first).toEqual([]);
    await vi.waitFor(() => expect(pool.stats()).toMatchObject({ leased: 4, waiting: 6 }));
    // The four that are there belong to the pending call, so only the deadline can end it.
    const results = await Promise.race([acquired, new Promise((resolve) => setTimeout(resolve, 20))]);
    expect(results).toBeUndefined();
    expect(source.maxAlive).toBe(4);
    await pool.drain();
    expect((await acquired).map((result) => result.ok)).toEqual([
      ...Array<boolean>(4).fill(true),
      ...Array<boolean>(6).fill(false),
    ]);
  });

  it("B24: a fan-out above the limit ends at its deadline with a typed error for each missing child", async () => {
    const { pool } = setUp({ maxLive: 4, maxReady: 0 });
    const results = await pool.acquire(CHECKPOINT, 10, { deadlineMs: 20 });
    expect(results.filter((result) => result.ok)).toHaveLength(4);
    expect(results.slice(4)).toEqual(
      Array(6).fill({ ok: false, error: expect.objectContaining({ code: "POOL_EXHAUSTED", retryable: true }) }),
    );
    expect(pool.stats()).toMatchObject({ live: 4, waiting: 0 });
  });

  it("made by a release goes to who waited first", async () => {
    const { pool } = setUp({ maxLive: 1, maxReady: 0 });
    const holder = await acquireOne(pool);
    const order: string[] = [];
    const waiting = ["first", "second"].map(async (name) => {
      const lease = await acquireOne(pool);
      order.push(name);
      await lease.release();
    });
    await holder.release();
    await Promise.all(waiting);
    expect(order).toEqual(["first", "second"]);
  });

  it("is made by closing a child that waits for another checkpoint", async () => {
    const { pool, source } = await warmed(2, { maxLive: 2 });
    const [result] = await pool.acquire("cp-2", 1);
    expect(leaseOf(result).isWarm).toBe(false);
    expect(source.maxAlive).toBe(2);
    expect(pool.stats().evicted).toBeGreaterThanOrEqual(1);
  });
});

describe("lease", () => {
  it("released twice closes the child once, and the second release is counted", async () => {
    const { pool, source } = setUp({ maxReady: 0 });
    const lease = await acquireOne(pool);
    await lease.release();
    await lease.release();
    lease.detach();
    expect(source.calls.filter((call) => call === "close")).toHaveLength(1);
    expect(pool.stats()).toMatchObject({ staleReleases: 2, live: 0 });
  });

  it("detached leaves the child to its owner", async () => {
    const { pool, source } = setUp({ maxReady: 0 });
    const lease = await acquireOne(pool);
    lease.detach();
    expect(source.alive).toBe(1);
    expect(pool.stats().live).toBe(0);
  });
});

describe("refill", () => {
  it("after a single fork does not fork for nobody", async () => {
    const { pool, source } = setUp();
    await acquireOne(pool);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(source.calls).toEqual(["fork"]);
  });

  it("after repeated forks keeps children waiting", async () => {
    const { pool } = setUp();
    await pool.acquire(CHECKPOINT, 8);
    await vi.waitFor(() => expect(pool.stats().ready).toBeGreaterThanOrEqual(3));
  });

  it("waits while the host works on other calls", async () => {
    const { pool, source } = setUp({ maxInFlight: 1 });
    source.otherCalls = 2;
    pool.forecast(CHECKPOINT, 3);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(source.calls).toEqual([]);
    source.otherCalls = 0;
    pool.poke();
    await vi.waitFor(() => expect(pool.stats().ready).toBe(3));
  });

  it("stops where the host has too little memory", async () => {
    const { pool, source } = setUp({ minAvailableBytes: 1_000, memoryReadingMs: 5 });
    source.memoryBytes = 999;
    pool.forecast(CHECKPOINT, 3);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(source.calls).toEqual([]);
    source.memoryBytes = 1_000;
    await vi.waitFor(() => expect(pool.stats().ready).toBeGreaterThan(0));
  });

  it("never keeps more waiting than the total, the most wanted checkpoint first", async () => {
    const { pool, source } = setUp({ maxReady: 4, refillBatch: 8 });
    pool.forecast("cold", 3);
    pool.forecast("hot", 6);
    await vi.waitFor(() => expect(pool.stats().ready).toBe(4));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pool.stats().ready).toBe(4);
    expect(source.alive).toBe(4);
  });

  it("after a failure leaves the checkpoint alone for a while", async () => {
    const { pool, source } = setUp({ failureBackoffMs: 1_000 });
    source.failures.forkAhead.push(new Error("no"));
    pool.forecast(CHECKPOINT, 2);
    await new Promise((resolve) => setTimeout(resolve, 40));
    expect(source.calls).toEqual(["forkAhead"]);
    expect(pool.stats()).toMatchObject({ failures: 1, live: 0 });
  });

  it("closes waiting children when demand has faded", async () => {
    const { pool, source } = await warmed(3, { demandHalfLifeMs: 150 });
    await vi.waitFor(() => expect(source.alive).toBe(0), 3_000);
    expect(pool.stats()).toMatchObject({ ready: 0, live: 0, evicted: 3 });
  });
});

describe("forget", () => {
  it("closes waiting children and leaves leases alone", async () => {
    const { pool, source } = await warmed(3);
    const lease = await acquireOne(pool);
    await pool.forget(CHECKPOINT);
    expect(source.alive).toBe(1);
    expect(source.child(lease.sandbox).isClosed).toBe(false);
  });

  it("closes children that are still being forked when they arrive", async () => {
    const { pool, source } = setUp({}, () => 10);
    pool.forecast(CHECKPOINT, 2);
    await vi.waitFor(() => expect(source.calls).toContain("forkAhead"));
    await pool.forget(CHECKPOINT);
    await vi.waitFor(() => expect(source.children.size).toBe(2));
    await vi.waitFor(() => expect(source.alive).toBe(0));
    expect(pool.stats().live).toBe(0);
  });
});

describe("drain", () => {
  it("closes what waits, refuses what comes, and leaves leases alone", async () => {
    const { pool, source } = await warmed(3);
    const lease = await acquireOne(pool);
    await pool.drain();
    expect(source.alive).toBe(1);
    await expect(pool.acquire(CHECKPOINT, 1)).rejects.toMatchObject({ code: "POOL_CLOSED" });
    await lease.release();
    expect(pool.stats().live).toBe(0);
  });
});

describe("invariant 8, B23", () => {
  it("200 owners at once with late, double and cancelled calls: each child has one owner, and none is lost", async () => {
    const random = seededRandom(23);
    const { pool, source } = setUp({ maxLive: 8, maxReady: 8, refillBatch: 4 }, () => random() * 3);
    const mixedUp: string[] = [];
    const outcomes = { used: 0, cancelled: 0 };

    const owner = async (name: string): Promise<void> => {
      const controller = new AbortController();
      if (random() < 0.1) {
        setTimeout(() => controller.abort(), random() * 20);
      }
      let lease: Lease;
      try {
        lease = await acquireOne(pool, controller.signal);
      } catch {
        outcomes.cancelled += 1;
        return;
      }
      const child = source.child(lease.sandbox);
      if (child.token !== undefined) {
        mixedUp.push(`${name} got the child of ${child.token}`);
      }
      child.token = name;
      await new Promise((resolve) => setTimeout(resolve, random() * 4));
      if (child.token !== name || child.isClosed) {
        mixedUp.push(`${name} lost its child to ${child.token}`);
      }
      outcomes.used += 1;
      await lease.release();
      if (random() < 0.1) {
        setTimeout(() => void lease.release(), random() * 30);
      }
    };

    pool.forecast(CHECKPOINT, 8);
    await Promise.all(Array.from({ length: 200 }, (_, index) => owner(`owner-${index}`)));
    await new Promise((resolve) => setTimeout(resolve, 40));

    expect(mixedUp).toEqual([]);
    expect(source.maxAlive).toBeLessThanOrEqual(8);
    expect(outcomes.used).toBeGreaterThan(150);
    expect(outcomes.cancelled).toBeGreaterThan(0);
    expect(pool.stats().staleReleases).toBeGreaterThan(0);
    pool.forecast(CHECKPOINT, 8);
    await vi.waitFor(() => expect(pool.stats()).toMatchObject({ ready: 8, leased: 0, waiting: 0, live: 8 }));
    await pool.drain();
    expect(source.alive).toBe(0);
  });
});
