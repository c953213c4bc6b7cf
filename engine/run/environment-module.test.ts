import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { defineEnvironment, type Environment } from "../environment.js";
import type { Json } from "../json.js";
import { moduleDigest, warmUpUsesSeed } from "./environment-module.js";

const environment: Environment<Json> = {
  name: "counter",
  image: { debian: {} },
  reset: async () => 0,
  step: async () => ({ observation: 1, reward: 0, terminated: false, truncated: false }),
  actions: () => ["a"],
  cell: () => "",
};

describe("defineEnvironment", () => {
  it("freezes what it is given", () => {
    expect(Object.isFrozen(defineEnvironment(environment))).toBe(true);
  });

  it.each([
    ["a name with capitals", { name: "Counter" }, "name: is not of lower-case letters"],
    ["no step", { step: undefined }, "step: is not a function"],
    ["a timeout of 0", { stepTimeoutMs: 0 }, "stepTimeoutMs"],
    ["an image without a distribution", { image: {} }, "image.debian"],
  ])("refuses %s, naming the field", (_what, fields, message) => {
    expect(() => defineEnvironment({ ...environment, ...fields } as never)).toThrow(
      expect.objectContaining({ code: "ENVIRONMENT_INVALID", message: expect.stringContaining(message) }),
    );
  });
});

describe("whether a warm-up uses the seed", () => {
  it.each<[string, Environment<Json>["warmUp"], boolean]>([
    ["is no without a warm-up", undefined, false],
    ["is no where it takes only the sandbox", async ({ sandbox }) => void (await sandbox.ping()), false],
    ["is yes where it takes the seed", async ({ sandbox, seed }) => void (await sandbox.exec([String(seed)])), true],
    ["is yes where it takes the rest, which has the seed", async ({ sandbox, ...rest }) => void [sandbox, rest], true],
    ["is yes where it passes its argument on", async (context) => void context, true],
  ])("%s", (_what, warmUp, expected) => {
    expect(warmUpUsesSeed({ ...environment, ...(warmUp === undefined ? {} : { warmUp }) })).toBe(expected);
  });
});

describe("the digest of a module", () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "coppice-module-"));
    await mkdir(join(folder, "parts"));
    await writeFile(
      join(folder, "main.js"),
      'import { a } from "./parts/a.js";\nimport zod from "zod";\nexport default a;\n',
    );
    await writeFile(join(folder, "parts", "a.js"), 'export * from "./b.js";\n');
    await writeFile(join(folder, "parts", "b.js"), 'import "../main.js";\nexport const a = 1;\n');
  });

  afterEach(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  const digest = (): Promise<string> => moduleDigest(pathToFileURL(join(folder, "main.js")));

  it("changes with what it imports, in any depth", async () => {
    const before = await digest();
    expect(await digest()).toBe(before);
    await writeFile(join(folder, "parts", "b.js"), 'import "../main.js";\nexport const a = 2;\n');
    expect(await digest()).not.toBe(before);
  });

  it("does not change with the place of the files", async () => {
    const before = await digest();
    const other = await mkdtemp(join(tmpdir(), "coppice-module-"));
    await rm(other, { recursive: true });
    await rename(folder, other);
    folder = other;
    expect(await digest()).toBe(before);
  });
});
