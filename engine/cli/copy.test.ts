import { execFileSync } from "node:child_process";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { CoppiceError, type FileKind, type SandboxFiles } from "../../sandbox-pool/index.js";
import { copyIn, copyOut } from "./copy.js";

interface Entry {
  readonly kind: FileKind;
  /** Contents of a file, target of a link. */
  readonly data?: Buffer;
  readonly mode?: number;
}

/** A guest's files as a map: only what copying uses. */
function fakeFiles(entries: Map<string, Entry>): SandboxFiles {
  const find = (path: string): Entry => {
    const entry = entries.get(path.replace(/\/\.$/, ""));
    if (entry === undefined) throw new CoppiceError(path, { code: "FILE_NOT_FOUND", faultDomain: "guest", remedy: "" });
    return entry;
  };
  const files: Partial<SandboxFiles> = {
    stat: async (path) => {
      const { kind, data, mode } = find(path);
      return { kind, size: data?.length ?? 0, mode: mode ?? 0o644, mtimeMs: 0 };
    },
    list: async (path) =>
      [...entries]
        .filter(([name]) => name !== path && posix.dirname(name) === path)
        .map(([name, { kind }]) => ({ name: posix.basename(name), kind })),
    mkdir: async (path) => void entries.set(path, { kind: "directory" }),
    symlink: async (target, path) => void entries.set(path, { kind: "symlink", data: Buffer.from(target) }),
    readlink: async (path) => String(find(path).data),
    readStream: async function* (path: string) {
      yield find(path).data ?? Buffer.alloc(0);
    },
    writeStream: async (path, source, options) => {
      const pieces: Buffer[] = [];
      for await (const piece of source) pieces.push(Buffer.from(piece));
      entries.set(path, { kind: "file", data: Buffer.concat(pieces), mode: options?.mode ?? 0 });
    },
  };
  return files as SandboxFiles;
}

let folder: string;
let guest: Map<string, Entry>;
const { signal } = new AbortController();

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-copy-"));
  guest = new Map([["/srv", { kind: "directory" }]]);
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

const work = (): { files: SandboxFiles; signal: AbortSignal } => ({ files: fakeFiles(guest), signal });

describe("copying into a guest", () => {
  it("takes a directory with its files, modes and links", async () => {
    await mkdir(join(folder, "src/deep"), { recursive: true });
    await writeFile(join(folder, "src/deep/run"), "#!");
    await chmod(join(folder, "src/deep/run"), 0o750);
    await symlink("deep/run", join(folder, "src/link"));
    const report = await copyIn(work(), join(folder, "src"), "/srv");
    expect(report).toMatchObject({ files: 1, directories: 2, links: 1, bytes: 2 });
    expect(guest.get("/srv/src/deep/run")).toEqual({ kind: "file", data: Buffer.from("#!"), mode: 0o750 });
    expect(String(guest.get("/srv/src/link")?.data)).toBe("deep/run");
  });

  it("gives a file the name that does not exist yet", async () => {
    await writeFile(join(folder, "a"), "x");
    await copyIn(work(), join(folder, "a"), "/srv/b");
    expect(String(guest.get("/srv/b")?.data)).toBe("x");
  });

  it.runIf(process.getuid?.() !== 0)("of a file that may not be read says so", async () => {
    await writeFile(join(folder, "secret"), "x", { mode: 0 });
    const copying = copyIn(work(), join(folder, "secret"), "/srv/b");
    await expect(copying).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("opens nothing before the guest asks for it", async () => {
    await writeFile(join(folder, "gone"), "x");
    const files = {
      ...fakeFiles(guest),
      writeStream: async (_path, source) => {
        await rm(join(folder, "gone"));
        await new Promise((resolve) => setImmediate(resolve));
        for await (const _ of source);
      },
    } as SandboxFiles;
    const copying = copyIn({ files, signal }, join(folder, "gone"), "/srv/b");
    await expect(copying).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("of a pipe or the like by its name is refused, and one below a directory is told of", async () => {
    await mkdir(join(folder, "src"));
    execFileSync("mkfifo", [join(folder, "src/s")]);
    await expect(copyIn(work(), join(folder, "src/s"), "/srv")).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("is a named pipe") as string,
    });
    const report = await copyIn(work(), join(folder, "src"), "/srv");
    expect(report).toMatchObject({ directories: 1, skipped: [{ path: join(folder, "src/s"), kind: "fifo" }] });
  });

  it("of what does not exist says so", async () => {
    await expect(copyIn(work(), join(folder, "none"), "/srv")).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });
});

describe("copying out of a guest", () => {
  it("makes directory, files and links here", async () => {
    guest.set("/srv/a", { kind: "file", data: Buffer.from("A"), mode: 0o600 });
    guest.set("/srv/l", { kind: "symlink", data: Buffer.from("/etc/passwd") });
    guest.set("/srv/s", { kind: "socket" });
    const report = await copyOut(work(), "/srv", join(folder, "out"));
    expect(report).toMatchObject({ files: 1, directories: 1, links: 1, skipped: [{ path: "/srv/s", kind: "socket" }] });
    expect(await readFile(join(folder, "out/a"), "utf8")).toBe("A");
    expect((await lstat(join(folder, "out/a"))).mode & 0o777).toBe(0o600);
    expect(await readlink(join(folder, "out/l"))).toBe("/etc/passwd");
  });

  it("writes through no link that lies where a file is to be", async () => {
    await writeFile(join(folder, "victim"), "safe");
    await mkdir(join(folder, "out"));
    await symlink(join(folder, "victim"), join(folder, "out/a"));
    guest.set("/srv/a", { kind: "file", data: Buffer.from("evil") });
    await expect(copyOut(work(), "/srv/a", join(folder, "out"))).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
    expect(await readFile(join(folder, "victim"), "utf8")).toBe("safe");
  });

  it("of a pipe or the like by its name is refused", async () => {
    guest.set("/srv/f", { kind: "fifo" });
    await expect(copyOut(work(), "/srv/f", join(folder, "f"))).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: "/srv/f is a named pipe, which can't be copied",
    });
    expect(await readdir(folder)).toEqual([]);
  });

  it("that fails half-way leaves the old file as it was, and nothing beside it", async () => {
    await writeFile(join(folder, "a"), "old");
    guest.set("/srv/a", { kind: "file", data: Buffer.from("new") });
    const files = {
      ...fakeFiles(guest),
      readStream: async function* () {
        yield Buffer.from("n");
        expect((await readdir(folder)).length).toBe(2);
        throw new CoppiceError("gone", { code: "HOST_LOST", faultDomain: "host", remedy: "" });
      },
    } as SandboxFiles;
    const copying = copyOut({ files, signal }, "/srv/a", join(folder, "a"));
    await expect(copying).rejects.toMatchObject({ code: "HOST_LOST" });
    expect([await readdir(folder), await readFile(join(folder, "a"), "utf8")]).toEqual([["a"], "old"]);
  });

  it("keeps the mode of a file that it replaces", async () => {
    await writeFile(join(folder, "a"), "old");
    await chmod(join(folder, "a"), 0o604);
    guest.set("/srv/a", { kind: "file", data: Buffer.from("new"), mode: 0o640 });
    await copyOut(work(), "/srv/a", join(folder, "a"));
    expect([(await lstat(join(folder, "a"))).mode & 0o777, await readFile(join(folder, "a"), "utf8")]).toEqual([
      0o604,
      "new",
    ]);
  });

  it("never replaces what is no file", async () => {
    execFileSync("mkfifo", [join(folder, "s")]);
    guest.set("/srv/s", { kind: "file", data: Buffer.from("x") });
    await expect(copyOut(work(), "/srv/s", join(folder, "s"))).rejects.toMatchObject({ code: "OUTPUT_FAILED" });
    expect((await lstat(join(folder, "s"))).isFIFO()).toBe(true);
  });

  it("ends where a guest sends far more than the file was said to have", async () => {
    guest.set("/srv/a", { kind: "file", data: Buffer.from("A") });
    const piece = Buffer.alloc(1024 * 1024);
    const files = {
      ...fakeFiles(guest),
      readStream: async function* () {
        for (let count = 0; count < 1_000; count++) yield piece;
      },
    } as SandboxFiles;
    await expect(copyOut({ files, signal }, "/srv/a", join(folder, "out"))).rejects.toMatchObject({
      code: "GUEST_MISBEHAVED",
    });
  });

  it.each(["..", ".", "", "a/b", "../x"])("takes no entry that a guest names %j", async (name) => {
    const files = { ...fakeFiles(guest), list: async () => [{ name, kind: "file" as const }] } as SandboxFiles;
    await expect(copyOut({ files, signal }, "/srv", join(folder, "out"))).rejects.toMatchObject({
      code: "GUEST_MISBEHAVED",
    });
  });
});
