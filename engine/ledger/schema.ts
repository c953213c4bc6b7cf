/** Tables of the ledger. A file may hold several runs; rows are only ever added. Described in `docs/ledger.md`. */

/** "Cppc": tells our files from other SQLite files. */
export const APPLICATION_ID = 0x43_70_70_63;

/** Raised whenever a table changes; a newer file is refused. */
export const SCHEMA_VERSION = 1;

const APPEND_ONLY = ["run", "event", "visit"].flatMap((table) =>
  ["UPDATE", "DELETE"].map(
    (verb) => `CREATE TRIGGER ${table}_no_${verb.toLowerCase()} BEFORE ${verb} ON ${table}
      BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;`,
  ),
);

export const SCHEMA = `
CREATE TABLE run (
  run INTEGER PRIMARY KEY,
  started_at_ms INTEGER NOT NULL,
  environment TEXT NOT NULL,
  environment_digest TEXT NOT NULL,
  search TEXT NOT NULL,
  seed INTEGER NOT NULL,
  options TEXT NOT NULL
) STRICT;

CREATE TABLE event (
  seq INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run (run),
  elapsed_ms REAL NOT NULL,
  kind TEXT NOT NULL,
  trial INTEGER,
  attempt INTEGER,
  checkpoint TEXT,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_kind ON event (run, kind, seq);

CREATE TABLE visit (
  run INTEGER NOT NULL REFERENCES run (run),
  trial INTEGER NOT NULL,
  step INTEGER NOT NULL,
  action TEXT NOT NULL,
  observation TEXT NOT NULL,
  digest TEXT NOT NULL,
  reward REAL NOT NULL,
  terminated INTEGER NOT NULL,
  truncated INTEGER NOT NULL,
  cell TEXT NOT NULL,
  landmarks TEXT NOT NULL,
  score REAL,
  checkpoint TEXT,
  PRIMARY KEY (run, trial, step)
) STRICT, WITHOUT ROWID;

${APPEND_ONLY.join("\n")}
`;
