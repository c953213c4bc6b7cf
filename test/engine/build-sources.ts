/** JavaScript of the sources, for tests with worker threads and child processes: those do not go through the test runner. */

import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { build } from "vite";

const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** The environment of these tests, as an entry of `buildSources`. */
export const WALK = relative(root, fileURLToPath(new URL("./walk-environment.ts", import.meta.url)));

export interface BuiltSources extends AsyncDisposable {
  /** URL of what was made of a source file, such as `engine/cli/main.ts`. */
  url(source: string): URL;
  path(source: string): string;
}

/** Each module in a file of its own, in the folders of the sources. */
export async function buildSources(...entries: readonly string[]): Promise<BuiltSources> {
  // Below node_modules, so that what the sources import is found from there.
  const cache = join(root, "node_modules", ".cache");
  await mkdir(cache, { recursive: true });
  const directory = await mkdtemp(join(cache, "coppice-test-"));
  await build({
    root,
    configFile: false,
    logLevel: "error",
    publicDir: false,
    build: {
      ssr: true,
      outDir: directory,
      emptyOutDir: true,
      target: "node20",
      minify: false,
      sourcemap: "inline",
      rolldownOptions: {
        input: entries.map((entry) => join(root, entry)),
        output: { preserveModules: true, preserveModulesRoot: root, entryFileNames: "[name].js" },
      },
    },
  });
  const path = (source: string): string => join(directory, source.replace(/\.ts$/, ".js"));
  return {
    path,
    url: (source) => pathToFileURL(path(source)),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}
