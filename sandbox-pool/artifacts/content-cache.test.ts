import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, truncate, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { cached, contentKey, listEntries, openEntry, prune } from "./content-cache.js";
import { lockFile, tryLockFile } from "./lock.js";
import { requireTool } from "./tools.js";

let parent: string;

beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), "coppice-cache-"));
});

afterEach(async () => {
  await rm(parent, { recursive: true, force: true });
});

/** A builder of one small file that counts its runs. */
function builder(contents = "contents") {
  return vi.fn(async (directory: string) => {
    await writeFile(join(directory, "data"), contents);
    return { made: "here" };
  });
}

async function entryFor(build: ReturnType<typeof builder>, onProgress?: (message: string) => void) {
  return await cached({ parent, key: "key", title: "the thing", build, onProgress });
}

const data = () => join(parent, "key", "data");

describe("a cache entry", () => {
  it("is built once, with its facts, and found again", async () => {
    const build = builder();
    const first = await entryFor(build);
    expect(await entryFor(build)).toEqual(first);
    expect(first).toEqual({ directory: join(parent, "key"), facts: { made: "here" } });
    expect(build).toHaveBeenCalledTimes(1);
    expect(await readFile(data(), "utf8")).toBe("contents");
  });

  it("whose builder fails leaves nothing behind", async () => {
    const build = async (directory: string): Promise<never> => {
      await writeFile(join(directory, "half"), "half");
      throw new Error("no luck");
    };
    await expect(cached({ parent, key: "key", title: "the thing", build })).rejects.toThrow("no luck");
    expect(await readdir(parent)).toEqual([]);
  });

  it("is not there before it is whole", async () => {
    const build = builder();
    build.mockImplementationOnce(async (directory) => {
      await writeFile(join(directory, "data"), "contents");
      expect(await openEntry(parent, "key")).toBeUndefined();
      expect(await listEntries(parent)).toEqual([]);
      return { made: "here" };
    });
    await entryFor(build);
    expect(await listEntries(parent)).toEqual(["key"]);
  });

  it("of an interrupted builder is not kept", async () => {
    const controller = new AbortController();
    const build = async (directory: string) => {
      await writeFile(join(directory, "data"), "contents");
      controller.abort();
      return undefined;
    };
    const made = cached({ parent, key: "key", title: "the thing", build, signal: controller.signal });
    await expect(made).rejects.toMatchObject({ code: "ABORTED" });
    expect(await readdir(parent)).toEqual([]);
  });

  it("for which the disk has no room is a typed error", async () => {
    const build = async (): Promise<never> => {
      throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
    };
    await expect(cached({ parent, key: "key", title: "the thing", build })).rejects.toMatchObject({
      code: "DISK_FULL",
    });
  });
});

describe("a damaged cache entry is built again", () => {
  it.each<[string, () => Promise<void>]>([
    ["a truncated file", async () => await truncate(data(), 3)],
    [
      "other contents of the same size and time",
      async () => {
        await writeFile(data(), "CONTENTS");
        await utimes(data(), 1, 1);
      },
    ],
    ["a missing file", async () => await rm(data())],
    ["a missing manifest", async () => await rm(join(parent, "key", "manifest.json"))],
    ["a manifest that is not JSON", async () => await writeFile(join(parent, "key", "manifest.json"), '{"files":')],
    [
      "a manifest of another form",
      async () => await writeFile(join(parent, "key", "manifest.json"), '{"files":{"data":null}}'),
    ],
    [
      "a directory instead of the file",
      async () => {
        await rm(data());
        await mkdir(data());
      },
    ],
  ])("with %s", async (_damage, damage) => {
    const build = builder();
    await entryFor(build);
    await damage();
    expect(await openEntry(parent, "key")).toBeUndefined();
    const messages: string[] = [];
    await entryFor(build, (message) => messages.push(message));
    expect(build).toHaveBeenCalledTimes(2);
    expect(await readFile(data(), "utf8")).toBe("contents");
    expect(messages).toEqual(["the thing in the cache is damaged, makes it again"]);
  });
});

describe("builders of the same entry", () => {
  it("that start at once end with one entry of one build", async () => {
    const build = builder();
    const entries = await Promise.all(Array.from({ length: 4 }, () => entryFor(build)));
    expect(new Set(entries.map((entry) => entry.directory))).toEqual(new Set([join(parent, "key")]));
    expect(build).toHaveBeenCalledTimes(1);
    expect(await readdir(parent)).toEqual(["key"]);
  });

  it("that died do not block the next one, and what they left is not taken for an entry", async () => {
    const lock = join(parent, ".lock-key");
    const dead = spawn(requireTool("flock"), ["--no-fork", lock, "sh", "-c", "echo locked; exec sleep 600"]);
    await once(dead.stdout, "data");
    await mkdir(join(parent, ".partial-key"));
    await writeFile(join(parent, ".partial-key", "rest"), "of the dead");
    expect(await tryLockFile(lock)).toBeUndefined();

    const build = builder();
    let entry: ReturnType<typeof entryFor> | undefined;
    await new Promise<void>((resolve) => {
      entry = entryFor(build, () => resolve());
    });
    expect(build).not.toHaveBeenCalled();
    dead.kill("SIGKILL");
    await Promise.all([entry, entryFor(build)]);
    expect(build).toHaveBeenCalledTimes(1);
    expect(await readdir(join(parent, "key"))).not.toContain("rest");
  });

  it("that wait can be interrupted", async () => {
    const held = await lockFile(join(parent, ".lock-key"));
    const controller = new AbortController();
    const build = builder();
    const onProgress = () => controller.abort();
    const waiting = cached({ parent, key: "key", title: "the thing", build, signal: controller.signal, onProgress });
    await expect(waiting).rejects.toMatchObject({ code: "ABORTED" });
    held.release();
    await entryFor(build);
    expect(build).toHaveBeenCalledTimes(1);
  });
});

describe("prune", () => {
  it("removes old entries above the number to keep, and rests of dead builders", async () => {
    for (const key of ["old", "older", "new"]) {
      await cached({ parent, key, title: key, build: builder() });
    }
    await utimes(join(parent, "old", "manifest.json"), 2_000, 2_000);
    await utimes(join(parent, "older", "manifest.json"), 1_000, 1_000);
    await mkdir(join(parent, ".partial-gone"));
    expect(await listEntries(parent)).toEqual(["new", "old", "older"]);
    await prune(parent, { keep: 2, maxAgeMs: 60_000 });
    expect(await readdir(parent)).toEqual(["new", "old"]);
  });

  it("leaves alone what is being built", async () => {
    await cached({ parent, key: "key", title: "key", build: builder() });
    await mkdir(join(parent, ".partial-key"));
    await utimes(join(parent, "key", "manifest.json"), 1_000, 1_000);
    const held = await lockFile(join(parent, ".lock-key"));
    await prune(parent, { keep: 0, maxAgeMs: 0 });
    expect(await readdir(parent)).toEqual([".lock-key", ".partial-key", "key"]);
    held.release();
  });
});

describe("a content key", () => {
  it("depends on values, and not on the order of fields", () => {
    expect(contentKey({ a: 1, b: [{ c: 2, d: 3 }] })).toBe(contentKey({ b: [{ d: 3, c: 2 }], a: 1 }));
    expect(contentKey({ a: [1, 2] })).not.toBe(contentKey({ a: [2, 1] }));
  });
});
