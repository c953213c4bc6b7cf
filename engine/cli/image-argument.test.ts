import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { placeOf } from "./cp.js";
import { addVariable, exitCodeOfProgram } from "./exec.js";
import { chooseImage, isSandboxId } from "./image-argument.js";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-image-"));
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function specFile(contents: unknown): Promise<string> {
  const path = join(folder, "image.json");
  await writeFile(path, typeof contents === "string" ? contents : JSON.stringify(contents));
  return path;
}

describe("an image argument", () => {
  it("may be the minimal Debian, or one with packages", async () => {
    expect((await chooseImage("debian")).spec).toEqual({ debian: { packages: [] } });
    expect((await chooseImage("debian:python3, sqlite3")).spec).toEqual({
      debian: { packages: ["python3", "sqlite3"] },
    });
  });

  it("may be a file, whose files are text or files beside it", async () => {
    await writeFile(join(folder, "app"), Buffer.from([0, 255]));
    const files = { "/srv/text": "hello", "/srv/app": { from: "./app" } };
    const path = await specFile({ debian: { packages: ["gcc"], suite: "bookworm" }, files });
    expect((await chooseImage(path)).spec).toEqual({
      debian: { packages: ["gcc"], suite: "bookworm" },
      files: { "/srv/text": "hello", "/srv/app": Buffer.from([0, 255]) },
    });
  });

  it.each([
    ["debain", "did you mean debian?"],
    ["debian12", "did you mean debian?"],
    ["fedora", '"fedora" is no image'],
    ["./no/such.json", "can not be read"],
  ])("such as %s is refused: %s", async (word, message) => {
    await expect(chooseImage(word)).rejects.toMatchObject({
      code: "IMAGE_SPEC_INVALID",
      message: expect.stringContaining(message) as string,
    });
  });

  it.each([
    ["debian:bookworm", "is a release of Debian", "Write debian, which is bookworm, or debian:PACKAGE,PACKAGE."],
    ["debian:12-slim", "is a release of Debian", '"suite"'],
    ["debian:python3,trixie", '"trixie" is a release', '"suite"'],
    ["python:3.12", '"python:3.12" is no image', "Write debian:python3"],
    ["docker.io/library/redis:7", "is no image", "Write debian:redis-server"],
    ["ubuntu:22.04", "is no image", "other distributions can't be had"],
    ["ghcr.io/some/thing", "is no image", "container registries"],
    ["fedora", "is no image", "An image is debian, debian:PACKAGE"],
    ["sb-1f2e3d-7", "is a sandbox", "coppice exec sb-1f2e3d-7 -- COMMAND"],
    ["./no/such", "can not be read", "Check the path"],
  ])("such as %s is refused, and told what to write instead", async (word, message, remedy) => {
    await expect(chooseImage(word)).rejects.toMatchObject({
      code: "IMAGE_SPEC_INVALID",
      message: expect.stringContaining(message) as string,
      remedy: expect.stringContaining(remedy) as string,
    });
  });

  it.each([
    ["{", "is not JSON"],
    [{ debian: { package: [] } }, "package"],
    [{ debian: {}, files: { "/x": 3 } }, "files./x"],
    [{ debian: {}, files: { "/x": { from: "./none" } } }, "none can not be read"],
  ])("with the contents %j names what is wrong", async (contents, message) => {
    await expect(chooseImage(await specFile(contents))).rejects.toThrow(message);
  });

  it("that begins like an id is looked for in the cache", async () => {
    await expect(chooseImage("sha256:xyz")).rejects.toMatchObject({ code: "IMAGE_NOT_FOUND" });
    await expect(chooseImage(`sha256:${"0".repeat(64)}`)).rejects.toMatchObject({ code: "IMAGE_NOT_FOUND" });
  });

  it("is told from a sandbox's id by its form", () => {
    expect(isSandboxId("sb-1f2e3d-7")).toBe(true);
    expect(isSandboxId("debian")).toBe(false);
  });
});

describe("a place to copy from or to", () => {
  it("is here, or in a sandbox", () => {
    expect(placeOf("./a:b")).toEqual({ sandbox: undefined, path: "./a:b" });
    expect(placeOf("sb-1f-7:/srv/a:b")).toEqual({ sandbox: "sb-1f-7", path: "/srv/a:b" });
  });

  it("in a sandbox begins with /", () => {
    expect(() => placeOf("sb-1f-7:srv")).toThrow("begins with /");
  });
});

describe("a program's end", () => {
  it.each([
    [{ exitCode: 7, signal: null, timedOut: false }, 7],
    [{ exitCode: null, signal: "SIGTERM", timedOut: false }, 143],
    [{ exitCode: null, signal: "SIGKILL", timedOut: true }, 124],
    [{ exitCode: null, signal: "SIGRTMIN+2", timedOut: false }, 164],
    [{ exitCode: null, signal: "SIGNEW", timedOut: false }, 125],
  ])("such as %j becomes exit code %i", (end, expected) => {
    expect(exitCodeOfProgram(end)).toBe(expected);
  });
});

describe("a variable", () => {
  it("has a name, and what comes after the first =", () => {
    expect(addVariable("A=b=c", { X: "1" })).toEqual({ X: "1", A: "b=c" });
    expect(() => addVariable("=x", {})).toThrow("NAME=VALUE");
  });
});
