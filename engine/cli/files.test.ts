import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, expect, test } from "vitest";

import { makeFolder } from "./files.js";

const folder = mkdtempSync(join(tmpdir(), "coppice-files-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("makeFolder, parents that are missing, makes them; twice is once", async () => {
  const path = join(folder, "a", "b", "c");
  await expect(makeFolder(path)).resolves.toBe(path);
  await expect(makeFolder(path)).resolves.toBe(path);
  expect(statSync(path).isDirectory()).toBe(true);
});

test("makeFolder, a file in the way, OUTPUT_FAILED", async () => {
  const file = join(folder, "file");
  writeFileSync(file, "");
  await expect(makeFolder(file)).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
  await expect(makeFolder(join(file, "below"))).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
});

test("makeFolder, a file system that answers ENOENT to every mkdir, OUTPUT_FAILED instead of no end", async () => {
  await expect(makeFolder("/proc/coppice/out")).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
});
