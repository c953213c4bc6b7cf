import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { makeFolder, writeOutput } from "./files.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-files-"));
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe("output files", () => {
  it("replace older ones as a whole, and leave nothing beside them", async () => {
    await writeOutput(join(folder, "a.json"), "old, and longer");
    await writeOutput(join(folder, "a.json"), "new");
    expect(await readFile(join(folder, "a.json"), "utf8")).toBe("new");
    expect(await readdir(folder)).toEqual(["a.json"]);
  });

  it("that can not be written are named in the error", async () => {
    await expect(writeOutput(join(folder, "none", "a.json"), "x")).rejects.toThrow(
      expect.objectContaining({ code: "OUTPUT_FAILED", message: expect.stringContaining("none") }),
    );
  });

  it("are not put into a folder that is a file", async () => {
    await writeFile(join(folder, "file"), "");
    await expect(makeFolder(join(folder, "file"))).rejects.toThrow(expect.objectContaining({ code: "OUTPUT_FAILED" }));
  });
});
