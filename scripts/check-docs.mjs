#!/usr/bin/env node
// Links in the documentation lead somewhere, and no source file grows past the size the style allows.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const MAX_LINES = 600;
const root = fileURLToPath(new URL("..", import.meta.url));
const tracked = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\0")
  .filter((name) => name !== "" && existsSync(join(root, name)));
const problems = [];

/** GitHub's anchor of a heading. */
function anchor(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replace(/ /g, "-");
}

function anchorsOf(file) {
  const text = readFileSync(file, "utf8").replace(/```[\s\S]*?```/g, "");
  return new Set([...text.matchAll(/^#{1,6} (.*)$/gm)].map((match) => anchor(match[1])));
}

for (const name of tracked.filter((name) => name.endsWith(".md"))) {
  const text = readFileSync(join(root, name), "utf8")
    .replace(/```[\s\S]*?```/g, "")
    .replace(/`[^`\n]*`/g, "");
  for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    const [path, fragment] = target.split("#");
    const file = path === "" ? join(root, name) : join(root, dirname(name), path);
    if (!existsSync(file)) problems.push(`${name}: nothing at '${target}'`);
    else if (fragment && file.endsWith(".md") && !anchorsOf(file).has(fragment))
      problems.push(`${name}: no heading for '${target}'`);
  }
}

for (const name of tracked.filter((name) => /\.(ts|rs|mjs)$/.test(name))) {
  const lines = readFileSync(join(root, name), "utf8").split("\n").length - 1;
  if (lines > MAX_LINES) problems.push(`${name}: ${lines} lines, more than ${MAX_LINES}: split it by concept`);
  const base = name.split("/").at(-1);
  if (name.endsWith(".ts") && !/^[a-z0-9]+(-[a-z0-9]+)*(\.e2e)?(\.test)?(\.config)?\.ts$/.test(base))
    problems.push(`${name}: file names are kebab-case`);
}

for (const problem of problems) console.error(problem);
console.log(`${tracked.length} files looked at, ${problems.length} problems`);
process.exitCode = problems.length === 0 ? 0 : 1;
