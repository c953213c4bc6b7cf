// The checks and the tests, as a person and as CI run them.

import { runForeground, SetupError, say } from "./process.mjs";

const node = (script, ...args) => [process.execPath, [script, ...args]];
const VITEST = "node_modules/vitest/vitest.mjs";

const CHECKS = [
  ["types", ...node("node_modules/typescript/bin/tsc", "--noEmit")],
  ["lint and format", ...node("node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings", ".")],
  [
    "dependency rules",
    ...node(
      "node_modules/dependency-cruiser/bin/dependency-cruise.mjs",
      "--config",
      ".dependency-cruiser.cjs",
      "index.ts",
      "engine",
      "search",
      "sandbox-pool",
      "examples",
      "benchmarks",
    ),
  ],
  ["dead code", ...node("node_modules/knip/bin/knip.js")],
  ["documentation", ...node("scripts/check-docs.mjs")],
  ["Rust format", "cargo", ["fmt", "--check"], "native"],
  ["Rust lint", "cargo", ["clippy", "--release", "--all-targets", "--locked", "--", "-D", "warnings"], "native"],
];

const UNIT = ["unit tests", ...node(VITEST, "run", "--project", "unit", "--project", "search")];

const TESTS = [
  UNIT,
  ["Rust tests", "cargo", ["test", "--release", "--locked"], "native"],
  ["end-to-end tests", ...node(VITEST, "run", "--project", "e2e")],
];

async function runAll(root, steps, extra = []) {
  const failed = [];
  for (const [name, program, args, folder] of steps) {
    say(`── ${name}`);
    const code = await runForeground(program, [...args, ...extra], {
      root: folder === undefined ? root : `${root}/${folder}`,
    });
    if (code === 130) throw new SetupError("interrupted", undefined, 130);
    if (code !== 0) failed.push(name);
  }
  say(failed.length === 0 ? "all passed" : `failed: ${failed.join(", ")}`);
  console.log(`stages: ${steps.length - failed.length} passed, ${failed.length} failed`);
  return failed.length === 0 ? 0 : 1;
}

export function runChecks(root) {
  return runAll(root, CHECKS);
}

/** All tests; with words, only the TypeScript tests whose file names contain one of them. */
export function runTests(root, words) {
  return words.length > 0 ? runAll(root, [["tests", ...node(VITEST, "run")]], words) : runAll(root, TESTS);
}

export function runUnitTests(root, words) {
  return runAll(root, [UNIT], words);
}
