// dist/ from the TypeScript sources, only where they changed.

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { contentKey, filesBelow } from "./cache.mjs";
import { runQuietly, say } from "./process.mjs";

const SOURCES = ["engine", "search", "sandbox-pool", "examples", "benchmarks"];

export async function compileTypeScript(root) {
  const files = [
    ...["index.ts", "package-lock.json", "tsconfig.json", "tsconfig.build.json"].map((name) => join(root, name)),
    ...SOURCES.flatMap((folder) => filesBelow(join(root, folder))),
  ];
  const key = contentKey(root, files);
  const stamp = join(root, "dist", ".compiled");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === key) return;
  say("compiles the TypeScript sources");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  await runQuietly(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"], {
    root,
    remedy: "the sources of this clone do not compile; compare with `git status`",
  });
  writeFileSync(stamp, key);
}
