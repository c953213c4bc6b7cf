/** Images built for real, by a process that is killed half-way. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type BuiltSources, buildSources } from "./engine/build-sources.js";

const MODULE = "sandbox-pool/artifacts/image.ts";
const SPEC = { debian: {}, files: { "/srv/killed.txt": "an image of this test's own\n" } };
const PATIENCE_MS = 120_000;

let built: BuiltSources;
let cache: string;

beforeAll(async () => {
  built = await buildSources(MODULE);
  cache = await mkdtemp(join(tmpdir(), "coppice-image-"));
});

afterAll(async () => {
  await built?.[Symbol.asyncDispose]();
  await rm(cache, { recursive: true, force: true });
});

function builder() {
  const script = `
    const { buildImageFile } = await import(${JSON.stringify(built.url(MODULE))});
    console.log((await buildImageFile(${JSON.stringify(SPEC)}, { cacheDirectory: ${JSON.stringify(cache)} })).path);
  `;
  return spawn(process.execPath, ["--input-type=module", "--eval", script], { stdio: ["ignore", "pipe", "inherit"] });
}

/** Entries of the cache that are being built. */
function partial(): readonly string[] {
  const images = join(cache, "images");
  if (!existsSync(images)) return [];
  return readdirSync(images)
    .filter((name) => name.startsWith(".partial-"))
    .map((name) => join(images, name));
}

/** Processes that work on anything below the cache. */
function workers(): readonly string[] {
  return readdirSync("/proc").filter((name) => {
    if (!/^\d+$/u.test(name) || Number(name) === process.pid) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, "utf8").includes(cache);
    } catch {
      return false;
    }
  });
}

describe("an image whose builder is killed half-way", () => {
  it("leaves no process and no mount, and the next build makes it (invariant 5)", async () => {
    const first = builder();
    // Packages are being unpacked: mmdebstrap has its mounts.
    const unpacking = () => partial().some((directory) => existsSync(join(directory, "root/var/lib/dpkg/info")));
    await vi.waitFor(() => expect(unpacking()).toBe(true), { timeout: PATIENCE_MS, interval: 50 });
    first.kill("SIGKILL");
    await once(first, "close");
    await vi.waitFor(() => expect(workers()).toEqual([]), { timeout: 5_000, interval: 50 });
    expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(cache);

    const second = builder();
    let path = "";
    second.stdout.setEncoding("utf8").on("data", (text: string) => {
      path += text;
    });
    const [code] = await once(second, "close");
    expect(code).toBe(0);
    expect(existsSync(path.trim())).toBe(true);
    expect(partial()).toEqual([]);
  });
});
