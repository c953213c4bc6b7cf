import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

import { remedyOf } from "./remedies.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Codes are upper snake case; the few of a single word are found by the field that holds them. */
const CODE_LITERAL = /"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"/g;
const SINGLE_WORD = /(?:code: |=> |user\(|Spec::new\(\s*)"([A-Z][A-Z0-9]{4,})"/g;

/** Upper snake case that is no code of ours: variables of the environment, calls of KVM, codes of other libraries. */
const NOT_OURS = /^(?:COPPICE|XDG|CARGO|KVM|SQLITE|ERR|LC|NODE)_/;
const NEITHER = new Set(["LOCAL_GAME_TIME", "NO_COLOR", "TERM_PROGRAM"]);

function sources(): readonly string[] {
  const listed = execFileSync(
    "git",
    [
      "ls-files",
      "-z",
      "--cached",
      "--others",
      "--exclude-standard",
      "engine",
      "sandbox-pool",
      "search",
      "examples",
      "native",
    ],
    { cwd: ROOT, encoding: "utf8" },
  );
  return listed
    .split("\0")
    .filter((name) => /\.(ts|rs)$/.test(name) && !/\.test\.ts$|\/tests?\/|_tests?\.rs$/.test(name));
}

/** Without the tests that Rust keeps in the same file. */
function read(name: string): string {
  let text: string;
  try {
    text = readFileSync(`${ROOT}/${name}`, "utf8");
  } catch {
    // Listed by git and deleted since.
    return "";
  }
  return name.endsWith(".rs") ? (text.split(/^#\[cfg\(test\)\]\nmod /m)[0] ?? "") : text;
}

/** Each with the file that has it; of files below `folders`, or of all. */
function codesInSources(...folders: readonly string[]): Map<string, string> {
  const codes = new Map<string, string>();
  const wanted = folders.length === 0 ? [""] : folders;
  for (const name of sources().filter((file) => wanted.some((folder) => file.startsWith(folder)))) {
    const text = read(name);
    for (const pattern of [CODE_LITERAL, SINGLE_WORD]) {
      for (const match of text.matchAll(pattern)) {
        const code = match[1] ?? "";
        if (!NOT_OURS.test(code) && !NEITHER.has(code) && !codes.has(code)) {
          codes.set(code, name);
        }
      }
    }
  }
  return codes;
}

function tableRows(): readonly (readonly string[])[] {
  const text = readFileSync(`${ROOT}/docs/errors.md`, "utf8");
  const rows = text.split("\n").filter((line) => line.startsWith("| `"));
  return rows.map((row) =>
    row
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

describe("docs/errors.md", () => {
  const listed = tableRows().map((row) => row[0]?.replaceAll("`", "") ?? "");

  it("lists every code that the sources use", () => {
    const missing = [...codesInSources()].filter(([code]) => !listed.includes(code));
    expect(missing.map(([code, name]) => `${code} (${name})`)).toEqual([]);
  });

  it("lists nothing that the sources do not use", () => {
    const used = codesInSources();
    expect(listed.filter((code) => !used.has(code))).toEqual([]);
  });

  it("is sorted by code, without doubles", () => {
    expect(listed).toEqual([...new Set(listed)].sort());
  });

  it("fills every cell", () => {
    for (const row of tableRows()) {
      expect(row).toHaveLength(5);
      expect(row.every((cell) => cell !== "")).toBe(true);
    }
  });
});

describe("remedies of failures that come without one", () => {
  it("are there for every code of agent and VMM", () => {
    // Agents and VMMs send code and message only. `remedyOf` answers for unknown codes, too, with where to look them up.
    const codes = [...codesInSources("native/coppice-agent/", "native/coppice-vmm/").keys()];
    expect(codes.length).toBeGreaterThan(30);
    expect(codes.filter((code) => remedyOf(code).includes("docs/errors.md says"))).toEqual([]);
  });

  it("of the daemon's own failures are given where they are made, or here", () => {
    const without = sources()
      .filter((name) => name.startsWith("native/coppiced/src/"))
      .flatMap((name) => [...read(name).matchAll(/(?:Spec::new|user)\(\s*"([A-Z_]+)"[^;]*?(?=,\n\s+\w|\n\s+}|;)/g)])
      .filter(([text]) => !text.includes(".remedy("))
      .map(([, code = ""]) => code);
    expect(without.length).toBeGreaterThan(0);
    expect(without.filter((code) => remedyOf(code).includes("docs/errors.md says"))).toEqual([]);
  });
});
