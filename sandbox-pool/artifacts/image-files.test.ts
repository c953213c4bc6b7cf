import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { addFiles } from "./image-files.js";

let folder: string;
let root: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-files-"));
  root = join(folder, "root");
  await mkdir(join(root, "etc"), { recursive: true });
  await mkdir(join(folder, "outside"));
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function add(path: string, contents = "new"): Promise<void> {
  await addFiles(root, new Map([[path, Buffer.from(contents)]]));
}

async function textOf(...names: readonly string[]): Promise<string> {
  return await readFile(join(root, ...names), "utf8");
}

describe("files added to a root file system", () => {
  it("get their directories, and the right to be executed where they are programs", async () => {
    const files = { "/srv/deep/text": "text", "/srv/script": "#!/bin/sh\n", "/srv/elf": "\u007fELF", "/srv/empty": "" };
    await addFiles(root, new Map(Object.entries(files).map(([path, text]) => [path, Buffer.from(text)])));
    const modes = await Promise.all(
      Object.keys(files).map(async (path) => (await lstat(join(root, path))).mode & 0o777),
    );
    expect(modes).toEqual([0o644, 0o755, 0o755, 0o644]);
    expect(await textOf("srv", "deep", "text")).toBe("text");
  });

  it("replace files", async () => {
    await writeFile(join(root, "etc", "motd"), "something longer");
    await add("/etc/motd");
    expect(await textOf("etc", "motd")).toBe("new");
  });

  it("replace a link, and not what it leads to", async () => {
    await writeFile(join(folder, "outside", "file"), "mine");
    await symlink(join(folder, "outside", "file"), join(root, "etc", "motd"));
    await add("/etc/motd");
    expect(await readFile(join(folder, "outside", "file"), "utf8")).toBe("mine");
    expect((await lstat(join(root, "etc", "motd"))).isFile()).toBe(true);
  });

  it("follow the image's absolute links inside of it, never to this machine's directories", async () => {
    await symlink(join(folder, "outside"), join(root, "var"));
    await add("/var/file");
    expect(await readdir(join(folder, "outside"))).toEqual([]);
    expect(await textOf(folder, "outside", "file")).toBe("new");
  });

  it("do not leave the root through links that lead up", async () => {
    await symlink("../../../../outside", join(root, "etc", "up"));
    await add("/etc/up/file");
    expect(await readdir(join(folder, "outside"))).toEqual([]);
    expect(await textOf("outside", "file")).toBe("new");
  });

  it.each([
    ["a directory", "/etc", "is a directory in the image"],
    ["below a file", "/etc/file/below", "which is a file in the image"],
    ["below a circle of links", "/etc/circle/below", "leads through a circle of links"],
  ])("whose place is %s are refused", async (_what, path, reason) => {
    await writeFile(join(root, "etc", "file"), "");
    await symlink("circle", join(root, "etc", "circle"));
    await expect(add(path)).rejects.toMatchObject({
      code: "IMAGE_SPEC_INVALID",
      message: expect.stringContaining(reason),
    });
  });
});
