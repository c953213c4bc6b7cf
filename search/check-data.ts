import { type ArchiveData, CELL_FIELDS, NODE_FIELDS } from "./archive.js";
import type { SerialisedArchive } from "./archive-state.js";
import { checkSeed } from "./draws.js";
import { SearchError } from "./errors.js";
import type { TrialBookData } from "./trial-book.js";

export const FORMAT = 1;

const PHASES: readonly unknown[] = ["running", "waiting", "settled"];

/**
 * Whether a value can be what `serialise` returned. A damaged file must fail here and not as a wrong choice later, so every
 * index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialised(serialised: unknown, name: string): SerialisedArchive {
  const data = object(serialised, "state", name);
  if (data["format"] !== FORMAT) throw incompatible(`has format ${String(data["format"])}, and not ${FORMAT}`, name);
  if (data["algorithm"] !== name) throw incompatible("is of another search", name);
  try {
    checkSeed(data["seed"]);
    object(data["config"], "config", name);
    object(object(data["config"], "config", name)["root"], "config.root", name);
    object(object(data["config"], "config", name)["weights"], "config.weights", name);
    const archive = checkArchive(object(data["archive"], "archive", name) as Partial<ArchiveData>, name);
    checkBook(object(data["book"], "book", name) as Partial<TrialBookData>, archive, name);
  } catch (error) {
    if (error instanceof SearchError && error.code === "INCOMPATIBLE_STATE") throw error;
    throw incompatible("is damaged", name, error);
  }
  return serialised as SerialisedArchive;
}

interface Sizes {
  readonly cells: number;
  readonly nodes: number;
}

function checkArchive(archive: Partial<ArchiveData>, name: string): Sizes {
  const cells = strings(archive.cellKeys, "archive.cellKeys", name).length + 1;
  const nodes = list(archive.checkpoints, "archive.checkpoints", name).length;
  const actionNames = strings(archive.actionNames, "archive.actionNames", name).length;
  const pathActions = list(archive.pathActions, "archive.pathActions", name);
  if (cells < 2 || nodes < 1) throw incompatible("has no root", name);
  for (const field of CELL_FIELDS) numbers(archive.cells?.[field], cells, `archive.cells.${field}`, name);
  for (const field of NODE_FIELDS) numbers(archive.nodes?.[field], nodes, `archive.nodes.${field}`, name);
  indexes(archive.cells?.node ?? [], -1, nodes, "archive.cells.node", name);
  indexes(archive.nodes?.cell ?? [], 0, cells, "archive.nodes.cell", name);
  indexes(archive.nodes?.replaced ?? [], -1, nodes, "archive.nodes.replaced", name);
  indexes(archive.nodes?.pathEnd ?? [], 0, pathActions.length + 1, "archive.nodes.pathEnd", name);
  indexes(pathActions, 0, actionNames, "archive.pathActions", name);
  indexes([archive.best], 0, nodes, "archive.best", name);
  indexes([archive.steps], 0, Number.MAX_SAFE_INTEGER, "archive.steps", name);
  for (const [node, parent] of (archive.nodes?.parent ?? []).entries()) {
    // A parent is older than its child, so that every path ends at the root.
    indexes([parent], node === 0 ? -1 : 0, node, `archive.nodes.parent[${node}]`, name);
  }
  for (const landmark of list(archive.landmarks, "archive.landmarks", name)) {
    const { kind, keys, foundStep } = object(landmark, "archive.landmarks", name);
    strings([kind], "archive.landmarks.kind", name);
    numbers(foundStep, strings(keys, "archive.landmarks.keys", name).length, "archive.landmarks.foundStep", name);
  }
  return { cells, nodes };
}

function checkBook(book: Partial<TrialBookData>, sizes: Sizes, name: string): void {
  const open = list(book.open, "book.open", name);
  indexes([book.merged], 0, Number.MAX_SAFE_INTEGER, "book.merged", name);
  if (typeof book.closed !== "boolean") throw incompatible("has a damaged book.closed", name);
  for (const [index, entry] of open.entries()) {
    const { id, node, cell, steps, version, attempt, phase, outcome } = object(entry, `book.open[${index}]`, name);
    const field = `book.open[${index}]`;
    if (id !== (book.merged ?? 0) + index) throw incompatible(`has trials out of order at ${field}`, name);
    indexes([node], 0, sizes.nodes, `${field}.node`, name);
    indexes([cell], 1, sizes.cells, `${field}.cell`, name);
    indexes([steps, version, attempt], 0, Number.MAX_SAFE_INTEGER, field, name);
    if (!PHASES.includes(phase)) throw incompatible(`has an unknown phase at ${field}`, name);
    if ((phase === "settled") !== (outcome !== null)) throw incompatible(`has a wrong outcome at ${field}`, name);
    if (outcome !== null) checkOutcome(object(outcome, `${field}.outcome`, name), `${field}.outcome`, name);
  }
}

function checkOutcome(outcome: Readonly<Record<string, unknown>>, field: string, name: string): void {
  if (outcome["kind"] === "rejected" || outcome["kind"] === "lost") return;
  if (outcome["kind"] !== "value") throw incompatible(`has an unknown outcome at ${field}`, name);
  for (const visit of list(outcome["visits"], `${field}.visits`, name)) {
    const { action, reward, cell, score, checkpoint, landmarks } = object(visit, `${field}.visits`, name);
    strings([action, cell ?? "", checkpoint ?? ""], `${field}.visits`, name);
    numbers([reward, score], 2, `${field}.visits`, name);
    for (const pair of list(landmarks, `${field}.visits.landmarks`, name)) {
      if (strings(pair, `${field}.visits.landmarks`, name).length !== 2)
        throw incompatible(`is damaged at ${field}`, name);
    }
  }
}

function object(value: unknown, field: string, name: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw incompatible(`has no object at ${field}`, name);
  return value as Readonly<Record<string, unknown>>;
}

function list(value: unknown, field: string, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw incompatible(`has no list at ${field}`, name);
  return value as readonly unknown[];
}

function strings(value: unknown, field: string, name: string): readonly unknown[] {
  const values = list(value, field, name);
  if (!values.every((entry) => typeof entry === "string"))
    throw incompatible(`has no list of strings at ${field}`, name);
  return values;
}

function numbers(value: unknown, length: number, field: string, name: string): void {
  const values = list(value, field, name);
  if (values.length !== length || !values.every((entry) => Number.isFinite(entry))) {
    throw incompatible(`has no list of ${length} numbers at ${field}`, name);
  }
}

function indexes(values: readonly unknown[], from: number, to: number, field: string, name: string): void {
  for (const value of values) {
    if (!Number.isInteger(value) || (value as number) < from || (value as number) >= to) {
      throw incompatible(`has ${String(value)} at ${field}, where an integer from ${from} to ${to - 1} belongs`, name);
    }
  }
}

function incompatible(what: string, name: string, cause?: unknown): SearchError {
  return new SearchError(`The serialised state of ${name} ${what}`, {
    code: "INCOMPATIBLE_STATE",
    faultDomain: "user",
    remedy: `Give what serialise() of ${name} returned, unchanged; a state of another version has to be made anew.`,
    cause,
  });
}
