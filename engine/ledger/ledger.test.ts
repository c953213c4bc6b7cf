import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { ledgerFailed } from "../errors.js";
import type { Visit } from "../workers/protocol.js";
import { openLedger, type RunHeader } from "./ledger.js";

let folder: string;
let path: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-ledger-"));
  path = join(folder, "run.sqlite");
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

const header: RunHeader = {
  startedAtMs: 0,
  environment: "walk",
  environmentDigest: "digest",
  search: "go-explore",
  seed: 1,
  options: { workers: 2 },
};

function visit(action: string): Visit {
  return {
    action,
    observation: { text: action },
    digest: `digest of ${action}`,
    reward: 0.5,
    terminated: false,
    truncated: false,
    cell: action,
    landmarks: {},
    score: null,
    checkpoint: null,
  };
}

describe("a ledger", () => {
  it("gives back the steps of a trial, for any part of it", () => {
    using ledger = openLedger(path);
    const run = ledger.begin(header);
    run.told(3, ["a", "b", "c"].map(visit), [{ kind: "trial.told", elapsedMs: 1, trial: 3, attempt: 0 }]);
    expect(run.steps(3, 1, 3).map(({ action, observation }) => [action, observation])).toEqual([
      ["b", { text: "b" }],
      ["c", { text: "c" }],
    ]);
  });

  it("holds several runs apart from each other", () => {
    using ledger = openLedger(path);
    const [first, second] = [ledger.begin(header), ledger.begin(header)];
    first.told(0, [visit("a")], []);
    second.told(0, [visit("b")], []);
    expect(second.steps(0, 0, 9).map(({ action }) => action)).toEqual(["b"]);
  });

  it("takes the result of a trial once (invariant 6)", () => {
    using ledger = openLedger(path);
    const run = ledger.begin(header);
    run.told(0, [visit("a")], []);
    expect(() => run.told(0, [visit("b")], [])).toThrow(expect.objectContaining({ code: "LEDGER_FAILED" }));
    expect(run.steps(0, 0, 9).map(({ action }) => action)).toEqual(["a"]);
  });

  it("refuses changes of what is written", () => {
    {
      using ledger = openLedger(path);
      ledger.begin(header).event({ kind: "run.ended", elapsedMs: 1 });
    }
    const database = new Database(path);
    expect(() => database.exec("UPDATE event SET kind = 'x'")).toThrow(/append-only/);
    expect(() => database.exec("DELETE FROM run")).toThrow(/append-only/);
    database.close();
  });

  it("leaves one file when it is closed", async () => {
    openLedger(path).close();
    await expect(copyFile(`${path}-wal`, `${path}.copy`)).rejects.toThrow(/ENOENT/);
  });

  it("of a newer version is refused, naming both versions", () => {
    openLedger(path).close();
    const database = new Database(path);
    database.pragma("user_version = 99");
    database.close();
    expect(() => openLedger(path)).toThrow(
      expect.objectContaining({ code: "LEDGER_VERSION", message: expect.stringContaining("99") }),
    );
  });

  it("is not made of a database of another program", () => {
    const database = new Database(path);
    database.exec("CREATE TABLE notes (text TEXT)");
    database.close();
    expect(() => openLedger(path)).toThrow(expect.objectContaining({ code: "LEDGER_FOREIGN" }));
  });

  it("is not made of a file that is no database", async () => {
    await writeFile(path, "a letter to a friend, long enough not to be taken for an empty file".repeat(100));
    expect(() => openLedger(path)).toThrow(expect.objectContaining({ code: "LEDGER_FOREIGN" }));
  });

  it("in a folder that is not there is refused with the path", () => {
    expect(() => openLedger(join(folder, "none", "run.sqlite"))).toThrow(
      expect.objectContaining({ code: "LEDGER_FAILED", message: expect.stringContaining("none") }),
    );
  });

  it("that has no space left says so", () => {
    const full = Object.assign(new Error("database or disk is full"), { code: "SQLITE_FULL" });
    expect(ledgerFailed(path, full)).toMatchObject({ code: "LEDGER_FULL", retryable: true });
  });
});
