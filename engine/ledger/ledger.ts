/** The append-only record of runs. Everything is written here before it is acted on. */

import Database from "better-sqlite3";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { ledgerFailed, ledgerForeign, ledgerTooNew } from "../errors.js";
import { canonicalJson, type Json } from "../json.js";
import type { Visit } from "../workers/protocol.js";
import { APPLICATION_ID, SCHEMA, SCHEMA_VERSION } from "./schema.js";

export interface RunHeader {
  readonly startedAtMs: number;
  readonly environment: string;
  readonly environmentDigest: string;
  readonly search: string;
  readonly seed: number;
  /** The resolved options. */
  readonly options: Json;
}

export type EventKind =
  | "template.ready"
  | "root.ready"
  | "trial.asked"
  | "trial.failed"
  | "trial.told"
  | "checkpoint.taken"
  | "checkpoint.accepted"
  | "checkpoint.released"
  | "run.ended";

export interface LedgerEvent {
  readonly kind: EventKind;
  readonly elapsedMs: number;
  readonly trial?: number;
  readonly attempt?: number;
  readonly checkpoint?: string;
  readonly body?: Json;
}

export interface RecordedStep {
  readonly action: string;
  readonly observation: Json;
  readonly digest: string;
  readonly cell: string;
  readonly reward: number;
}

/** One run's part of a ledger. */
export interface RunLedger {
  readonly run: number;
  event(event: LedgerEvent): void;
  /** A trial's visits and the events that go with them: all or nothing. */
  told(trial: number, visits: readonly Visit[], events: readonly LedgerEvent[]): void;
  /** Visits of `trial` with index `from` to `to - 1`. */
  steps(trial: number, from: number, to: number): readonly RecordedStep[];
}

export interface Ledger extends Disposable {
  readonly path: string;
  begin(header: RunHeader): RunLedger;
  close(): void;
}

/** Opens or makes a ledger. Without a path it lives in memory and ends with the run. */
export function openLedger(path = ":memory:"): Ledger {
  let database: Database.Database;
  try {
    database = new Database(path);
  } catch (error) {
    throw ledgerFailed(path, error);
  }
  try {
    prepare(database, path);
    return new SqliteLedger(database, path);
  } catch (error) {
    database.close();
    if (error instanceof Error && (error as { code?: unknown }).code === "SQLITE_NOTADB") {
      throw ledgerForeign(path, "is not an SQLite file");
    }
    throw error instanceof CoppiceError ? error : ledgerFailed(path, error);
  }
}

function prepare(database: Database.Database, path: string): void {
  database.pragma("busy_timeout = 5000");
  const application = database.pragma("application_id", { simple: true });
  const version = Number(database.pragma("user_version", { simple: true }));
  const tables = database.prepare("SELECT count(*) AS n FROM sqlite_schema").get() as { n: number };
  if (application !== APPLICATION_ID) {
    if (application !== 0 || tables.n > 0) throw ledgerForeign(path, "is a database of another program");
    database.pragma("journal_mode = WAL");
    database.transaction(() => {
      database.exec(SCHEMA);
      database.pragma(`application_id = ${APPLICATION_ID}`);
      database.pragma(`user_version = ${SCHEMA_VERSION}`);
    })();
  } else if (version > SCHEMA_VERSION) {
    throw ledgerTooNew(path, version, SCHEMA_VERSION);
  }
  // With a write-ahead log this loses at most the last moments to a power cut, and never consistency.
  database.pragma("synchronous = NORMAL");
  database.pragma("foreign_keys = ON");
}

class SqliteLedger implements Ledger {
  readonly #database: Database.Database;

  constructor(
    database: Database.Database,
    readonly path: string,
  ) {
    this.#database = database;
  }

  begin(header: RunHeader): RunLedger {
    return guarded(this.path, () => {
      const { lastInsertRowid } = this.#database
        .prepare(
          "INSERT INTO run VALUES (NULL, @startedAtMs, @environment, @environmentDigest, @search, @seed, @options)",
        )
        .run({ ...header, options: canonicalJson(header.options) });
      return new SqliteRunLedger(this.#database, this.path, Number(lastInsertRowid));
    });
  }

  close(): void {
    this.#database.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

class SqliteRunLedger implements RunLedger {
  readonly #database: Database.Database;
  readonly #path: string;
  readonly #insertEvent: Database.Statement;
  readonly #insertVisit: Database.Statement;
  readonly #selectSteps: Database.Statement;

  constructor(
    database: Database.Database,
    path: string,
    readonly run: number,
  ) {
    this.#database = database;
    this.#path = path;
    this.#insertEvent = database.prepare(
      "INSERT INTO event VALUES (NULL, @run, @elapsedMs, @kind, @trial, @attempt, @checkpoint, @body)",
    );
    this.#insertVisit = database.prepare(
      `INSERT INTO visit VALUES (@run, @trial, @step, @action, @observation, @digest, @reward, @terminated, @truncated,
        @cell, @landmarks, @score, @checkpoint)`,
    );
    this.#selectSteps = database.prepare(
      `SELECT action, observation, digest, cell, reward FROM visit
        WHERE run = ? AND trial = ? AND step >= ? AND step < ? ORDER BY step`,
    );
  }

  event(event: LedgerEvent): void {
    guarded(this.#path, () => this.#event(event));
  }

  told(trial: number, visits: readonly Visit[], events: readonly LedgerEvent[]): void {
    guarded(this.#path, () =>
      this.#database.transaction(() => {
        for (const [step, visit] of visits.entries()) this.#visit(trial, step, visit);
        for (const event of events) this.#event(event);
      })(),
    );
  }

  steps(trial: number, from: number, to: number): readonly RecordedStep[] {
    const rows = guarded(this.#path, () => this.#selectSteps.all(this.run, trial, from, to)) as {
      readonly [Key in keyof RecordedStep]: Key extends "reward" ? number : string;
    }[];
    return rows.map((row) => ({ ...row, observation: JSON.parse(row.observation) as Json }));
  }

  #event({ kind, elapsedMs, trial, attempt, checkpoint, body }: LedgerEvent): void {
    this.#insertEvent.run({
      run: this.run,
      elapsedMs,
      kind,
      trial: trial ?? null,
      attempt: attempt ?? null,
      checkpoint: checkpoint ?? null,
      body: canonicalJson(body ?? {}),
    });
  }

  #visit(trial: number, step: number, visit: Visit): void {
    this.#insertVisit.run({
      run: this.run,
      trial,
      step,
      action: visit.action,
      observation: canonicalJson(visit.observation),
      digest: visit.digest,
      reward: visit.reward,
      terminated: visit.terminated ? 1 : 0,
      truncated: visit.truncated ? 1 : 0,
      cell: visit.cell,
      landmarks: canonicalJson(visit.landmarks),
      score: visit.score,
      checkpoint: visit.checkpoint?.id ?? null,
    });
  }
}

function guarded<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw ledgerFailed(path, error);
  }
}
