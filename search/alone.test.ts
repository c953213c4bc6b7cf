import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const folder = fileURLToPath(new URL(".", import.meta.url));

/** What users get: everything but tests and what tests share. */
const sources = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts") && !name.startsWith("testing"))
  .map((name) => ({ name, text: readFileSync(join(folder, name), "utf8") }));

test("search imports nothing but itself: no other folder, no package, nothing of Node", () => {
  expect(sources.length).toBeGreaterThan(60);
  const foreign = sources.flatMap(({ name, text }) =>
    [...text.matchAll(/^(?:import|export)\s[^;"]*?\sfrom "([^"]+)"|^import "([^"]+)"|\bimport\("([^"]+)"\)/gm)]
      .map(([, named, whole, called]) => named ?? whole ?? called ?? "")
      .filter((wanted) => {
        const target = relative(folder, join(folder, dirname(name), wanted));
        return !wanted.startsWith(".") || target.startsWith("..") || target.startsWith("testing");
      })
      .map((wanted) => `${name}: ${wanted}`),
  );
  expect(foreign).toEqual([]);
});

test("search names no clock, no generator, no timer and nothing that does I/O", () => {
  const ambient =
    /\b(Math\.random|Date\b|performance|crypto|setTimeout|setInterval|process|fetch|console|globalThis|require)\b[.(]/;
  const found = sources.flatMap(({ name, text }) =>
    text
      .split("\n")
      .filter((line) => ambient.test(line) && !/^\s*(\*|\/\/|\/\*)/.test(line))
      .map((line) => `${name}: ${line.trim()}`),
  );
  expect(found).toEqual([]);
});
