#!/usr/bin/env node
// Brings a fresh clone to the point where a command can run, then runs it. Plain Node without dependencies, because it
// runs before there are any. Every step is skipped where its result is there already, and can be interrupted and repeated.

import { fileURLToPath } from "node:url";

import { buildNative } from "./setup/native.mjs";
import { installNodeModules } from "./setup/node-modules.mjs";
import { installPackages, missingRustToolchain } from "./setup/packages.mjs";
import { runForeground, SetupError, say } from "./setup/process.mjs";
import { compileTypeScript } from "./setup/typescript.mjs";
import { runChecks, runTests, runUnitTests } from "./setup/verify.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

const HELP = `Usage: node scripts/bootstrap.mjs COMMAND [ARGUMENTS]

  demo [OPTIONS]      set up what is missing, then explore Colossal Cave (npm run demo -- --help)
  coppice WORDS       set up what is missing, then run the command line (npm run coppice -- doctor)
  bench [OPTIONS]     set up what is missing, then measure this machine's host (npm run bench -- --help)
  bench:search        measure the search algorithms
  test                every test, with real virtual machines
  test:unit           the tests that need no virtual machine
  check               types, lint, format, dead code, dependency rules, documentation
  setup               only set up`;

/** Which parts of the set-up each command needs. */
const COMMANDS = {
  demo: { packages: "run", native: true, dist: true, run: (args) => runCli(["demo", ...args]) },
  coppice: { packages: "run", native: true, dist: true, run: (args) => runCli(args) },
  bench: { packages: "run", native: true, dist: true, run: (args) => runBenchmarks(args) },
  "bench:search": { packages: "unit", native: false, dist: true, run: () => runSearchBenchmarks() },
  setup: { packages: "run", native: true, dist: true, run: async () => 0 },
  test: { packages: "test", native: true, dist: true, run: (args) => runTests(root, args) },
  "test:unit": { packages: "unit", native: false, dist: false, run: (args) => runUnitTests(root, args) },
  check: { packages: "unit", native: false, dist: false, run: () => runChecks(root) },
};

function runCli(args) {
  return runForeground(process.execPath, ["--enable-source-maps", "dist/engine/cli/main.js", ...args], { root });
}

function runBenchmarks(args) {
  return runForeground(process.execPath, ["--enable-source-maps", "dist/benchmarks/host/main.js", ...args], { root });
}

function runSearchBenchmarks() {
  // What a node of a tree takes is counted after a collection; a million of them do not fit in the default heap.
  const flags = ["--expose-gc", "--max-old-space-size=4096"];
  return runForeground(process.execPath, [...flags, "dist/benchmarks/search/main.js"], { root });
}

/** Questions about usage need no set-up beyond what answers them. */
function withoutHost(name, args) {
  // Behind `--` are a guest's words.
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  return (
    ["demo", "coppice", "bench"].includes(name) && own.some((word) => ["--help", "-h", "--version"].includes(word))
  );
}

async function main() {
  const [name, ...args] = process.argv.slice(2);
  const command = Object.hasOwn(COMMANDS, name ?? "") ? COMMANDS[name] : undefined;
  if (command === undefined) {
    console.error(name === undefined ? HELP : `No command is called '${name}'.\n\n${HELP}`);
    return 2;
  }
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new SetupError(`Node ${process.versions.node} is too old.`, "Install Node 20.19 or newer.");
  }
  const light = withoutHost(name, args);
  await installPackages(light ? "unit" : command.packages);
  const steps = [installNodeModules(root)];
  if (command.native && !light) {
    const missing = missingRustToolchain();
    if (missing !== undefined) throw missing;
    steps.push(
      buildNative(root).then((directory) => {
        process.env.COPPICE_NATIVE_DIR = directory;
      }),
    );
  }
  const outcomes = await Promise.allSettled(steps);
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  if (command.dist) await compileTypeScript(root);
  return await command.run(args);
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(`stopped: ${error.message}`);
  if (error.remedy !== undefined) say(`  to go on: ${error.remedy}`);
  process.exitCode = error.exitCode;
}
