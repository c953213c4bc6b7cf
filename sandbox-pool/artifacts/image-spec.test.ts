import { describe, expect, it } from "vitest";

import type { ImageSpec } from "../api.js";
import { imageId, resolveImageSpec } from "./image-spec.js";

const idOf = (spec: ImageSpec) => imageId(resolveImageSpec(spec));

function failureOf(spec: unknown): { readonly code?: unknown; readonly message: string; readonly remedy?: unknown } {
  try {
    resolveImageSpec(spec as ImageSpec);
  } catch (error) {
    return error as Error;
  }
  throw new Error("it was accepted");
}

describe("an image's description", () => {
  it("resolves to sorted packages, each once, and to bytes", () => {
    const spec = { debian: { packages: ["zsh", "bc", "zsh"] }, files: { "/srv/b": "ä", "/srv/a": Uint8Array.of(1) } };
    const { packages, files, suite } = resolveImageSpec(spec);
    expect(packages).toEqual(["bc", "zsh"]);
    expect(suite).toMatch(/^[a-z]+$/);
    expect([...files].map(([path, contents]) => [path, [...contents]])).toEqual([
      ["/srv/a", [1]],
      ["/srv/b", [0xc3, 0xa4]],
    ]);
  });

  it("has an id that depends on what is built, and not on how it is written", () => {
    const id = idOf({ debian: { packages: ["bc", "zsh"] }, files: { "/a": "1", "/b": "2" } });
    expect(id).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(idOf({ debian: { packages: ["zsh", "bc", "bc"] }, files: { "/b": Buffer.from("2"), "/a": "1" } })).toBe(id);
    expect(idOf({ debian: { packages: ["bc"] }, files: { "/a": "1", "/b": "2" } })).not.toBe(id);
    expect(idOf({ debian: { packages: ["bc", "zsh"] }, files: { "/a": "2", "/b": "2" } })).not.toBe(id);
    expect(idOf({ debian: { packages: ["bc", "zsh"] }, files: { "/a": "1", "/c": "2" } })).not.toBe(id);
  });

  it.each([
    "no slash at the start",
    "srv/file",
    "",
    "/",
    "/srv/",
    "/srv//file",
    "/srv/./file",
    "/srv/../etc/passwd",
    "/../file",
    "/..",
    "/srv/a\0b",
  ])("with a file at %j is refused with the field's name", (path) => {
    const failure = failureOf({ debian: {}, files: { [path]: "x" } });
    expect(failure).toMatchObject({ code: "IMAGE_SPEC_INVALID", faultDomain: "user" });
    expect(failure.message).toContain("is not an absolute path of a file");
    expect(failure.message).toContain("image.files[");
    expect(failure.remedy).toContain("/srv/hello.txt");
  });

  it.each([
    ["longer than Linux allows", `/${"n".repeat(256)}`],
    ["longer than Linux allows", `/${"ä".repeat(128)}`],
    ["longer than Linux allows", "/0123456789".repeat(400)],
    ["would not be seen", "/tmp/file"],
    ["would not be seen", "/run"],
    ["would not be seen", "/dev/null"],
  ])("with a file whose path is or %s is refused", (reason, path) => {
    const failure = failureOf({ debian: {}, files: { [path]: "x" } });
    expect(failure).toMatchObject({ code: "IMAGE_SPEC_INVALID", message: expect.stringContaining(reason) });
  });

  it("with a path that only looks like a hidden one is accepted", () => {
    expect([...resolveImageSpec({ debian: {}, files: { "/tmpfiles": "", "/running/x": "" } }).files.keys()]).toEqual([
      "/running/x",
      "/tmpfiles",
    ]);
  });

  it("with a file that is a directory of another one is refused, wherever they are in the order", () => {
    const failure = failureOf({ debian: {}, files: { "/srv/a": "", "/srv/a-b": "", "/srv/a/deep/b": "" } });
    expect(failure).toMatchObject({
      code: "IMAGE_SPEC_INVALID",
      message: expect.stringContaining('it is the directory of "/srv/a/deep/b"'),
    });
  });

  it.each(["", "a", "Bash", "-y", "--help", "bash zsh", "bash;id", "$(id)", "bash\n", "bash=1", "../bash", "bash,zsh"])(
    "with the package %j is refused",
    (name) => {
      const failure = failureOf({ debian: { packages: ["bc", name] } });
      expect(failure).toMatchObject({ code: "IMAGE_SPEC_INVALID", faultDomain: "user" });
      expect(failure.message).toContain("image.debian.packages.1");
      expect(failure.message).toContain("is not the name of a Debian package");
    },
  );

  it.each(["", "Bookworm", "book worm", "-bookworm", "bookworm/updates", "http://x"])(
    "with the suite %j is refused",
    (suite) => {
      const failure = failureOf({ debian: { suite } });
      expect(failure).toMatchObject({ code: "IMAGE_SPEC_INVALID" });
      expect(failure.message).toContain("image.debian.suite");
    },
  );

  it.each<[string, unknown]>([
    ["nothing", undefined],
    ["null", null],
    ["no base", {}],
    ["packages that are no list", { debian: { packages: "bash" } }],
    ["a field that does not exist", { debian: {}, flies: {} }],
    ["contents that are neither text nor bytes", { debian: {}, files: { "/a": 7 } }],
  ])("that is %s is refused with a typed error", (_what, spec) => {
    expect(failureOf(spec)).toMatchObject({ code: "IMAGE_SPEC_INVALID", faultDomain: "user" });
  });
});
