import { describe, expect, it } from "vitest";

import type { CheckpointRow, SandboxRow } from "../../sandbox-pool/index.js";
import { drawTree } from "./checkpoints.js";
import { psTable } from "./ps.js";

const OWNER = { session: "ab12cd", client: "process 7" };

function checkpoint(id: string, parent: string | null, more: Partial<CheckpointRow> = {}): CheckpointRow {
  const row = { id, parent, owner: OWNER, name: null, dirtyPages: 1_234, children: 0, ageMs: 3_000, memory: null };
  return { ...row, ...more };
}

function sandbox(id: string, from: string | null): SandboxRow {
  const memory = { privateBytes: 1, totalBytes: 2 ** 21, diskBytes: 0 };
  return { id, checkpoint: from, owner: OWNER, state: "leased", ageMs: 61_000, memory };
}

describe("the tree of checkpoints", () => {
  it("has children below their parents, and sandboxes as leaves", () => {
    const checkpoints = [
      checkpoint("cp-1", null, { owner: null }),
      checkpoint("cp-2", "cp-1", { name: "lamp" }),
      checkpoint("cp-3", "cp-2"),
      checkpoint("cp-4", "cp-1"),
    ];
    const text = drawTree({ checkpoints, sandboxes: [sandbox("sb-1", "cp-3"), sandbox("sb-2", "cp-1")] });
    expect(text.split("\n").map((line) => line.replace(/ {2}\(.*/, ""))).toEqual([
      "cp-1",
      '├── cp-2 "lamp"',
      "│   └── cp-3",
      "│       └── sb-1",
      "├── cp-4",
      "└── sb-2",
    ]);
    expect(text).toContain("cp-1  (1,234 pages, 3 s, shared, from a boot)");
  });

  it("begins anew at a checkpoint whose parent was dropped", () => {
    expect(drawTree({ checkpoints: [checkpoint("cp-9", "cp-5")], sandboxes: [] })).toMatch(/^cp-9 /);
  });

  it("shows no control characters that somebody put into a name", () => {
    const text = drawTree({ checkpoints: [checkpoint("cp-1", null, { name: "\x1b[2Jx" })], sandboxes: [] });
    expect(text).toContain('"[2Jx"');
  });
});

describe("the list of sandboxes", () => {
  it("has state, age, checkpoint, memory and owner", () => {
    const text = psTable([sandbox("sb-1", "cp-3"), sandbox("sb-2", null)]);
    for (const part of ["sb-1", "leased", "61 s", "cp-3", "2.0 MiB", "ab12cd process 7", "(booted)"]) {
      expect(text).toContain(part);
    }
  });
});
