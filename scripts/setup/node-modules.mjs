// npm's packages, exactly as locked. The one native add-on is compiled once a machine and shared by every clone.

import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { cacheDirectory, contentKey } from "./cache.mjs";
import { runQuietly, say } from "./process.mjs";

const ADDON = "better-sqlite3";
const ADDON_FILE = join("build", "Release", "better_sqlite3.node");

export async function installNodeModules(root) {
  const modules = join(root, "node_modules");
  const stamp = join(modules, ".coppice-installed");
  const lock = join(root, "package-lock.json");
  const key = contentKey(root, [lock], [process.version, process.arch]);
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== key) {
    say("installs the packages of package-lock.json into node_modules");
    await runQuietly("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
      root,
      remedy: "check that the npm registry can be reached, then run the same command again",
    });
  }
  await provideAddon(join(modules, ADDON), root);
  writeFileSync(stamp, key);
}

async function provideAddon(folder, root) {
  const target = join(folder, ADDON_FILE);
  if (existsSync(target)) return;
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const cached = cacheDirectory("addons", `${ADDON}-${version}-${process.versions.modules}-${process.arch}.node`);
  if (!existsSync(cached)) {
    say(`compiles ${ADDON} (two to five minutes, once a machine)`);
    await runQuietly("npm", ["rebuild", ADDON, "--foreground-scripts", "--ignore-scripts=false"], {
      root,
      remedy: "a C++ compiler, make and python3 are needed: apt-get install g++ make python3",
    });
    mkdirSync(dirname(cached), { recursive: true });
    copyFileSync(target, `${cached}.partial-${process.pid}`);
    renameSync(`${cached}.partial-${process.pid}`, cached);
    return;
  }
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(cached, `${target}.partial-${process.pid}`);
  renameSync(`${target}.partial-${process.pid}`, target);
}
