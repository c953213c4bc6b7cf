import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { everyLife, watchLives } from "./generation.mjs";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "coppice-generation-"));
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe("a hook for every life", () => {
  it("gives a seed of its own to each, once", async () => {
    const file = join(directory, "generation");
    await writeFile(file, "9\n");
    const seeds: string[] = [];
    const renew = everyLife((seed) => seeds.push(seed.toString("hex")), file);
    expect([renew(), renew()]).toEqual([true, false]);
    // In place, as the agent does it.
    await writeFile(file, "10\n", { flag: "r+" });
    expect([renew(), renew()]).toEqual([true, false]);
    expect(new Set(seeds).size).toBe(2);
    for (const seed of seeds) expect(seed).toHaveLength(64);
  });
});

describe("a watch for lives", () => {
  it("tells of each later one once, and of none when it has ended", async () => {
    const file = join(directory, "generation");
    await writeFile(file, "9\n");
    let lives = 0;
    const end = watchLives(() => lives++, file);
    await writeFile(file, "9\n", { flag: "r+" });
    await writeFile(file, "10\n", { flag: "r+" });
    await vi.waitFor(() => expect(lives).toBe(1), 10_000);
    end();
    await writeFile(file, "11\n", { flag: "r+" });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(lives).toBe(1);
  });
});
