/** Every error that the engine throws on purpose, in one place; `docs/errors.md` has the same codes. */

import { CoppiceError } from "../sandbox-pool/index.js";

/** Where in a run something happened. */
export interface Place {
  readonly environment: string;
  readonly trial?: number;
  readonly step?: number;
  readonly action?: string;
}

function where(place: Place): string {
  const parts = [`environment '${place.environment}'`];
  if (place.trial !== undefined) parts.push(`trial ${place.trial}`);
  if (place.step !== undefined) parts.push(`step ${place.step}`);
  if (place.action !== undefined) parts.push(`action ${JSON.stringify(place.action)}`);
  return parts.join(", ");
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function optionInvalid(field: string, problem: string, remedy: string): CoppiceError {
  return new CoppiceError(`Option '${field}' ${problem}`, { code: "OPTION_INVALID", faultDomain: "user", remedy });
}

export function environmentInvalid(problem: string): CoppiceError {
  return new CoppiceError(`This is no environment: ${problem}`, {
    code: "ENVIRONMENT_INVALID",
    faultDomain: "user",
    remedy: "Correct the field; the Environment interface says what each has to be.",
  });
}

export function environmentModuleInvalid(
  module: string,
  problem: string,
  remedy: string,
  cause?: unknown,
): CoppiceError {
  return new CoppiceError(`The environment module ${module} ${problem}`, {
    code: "ENVIRONMENT_MODULE_INVALID",
    faultDomain: "user",
    remedy,
    cause,
  });
}

export function environmentFailed(call: string, place: Place, cause: unknown): CoppiceError {
  return new CoppiceError(`${call}() failed in ${where(place)}: ${reasonOf(cause)}`, {
    code: "ENVIRONMENT_FAILED",
    faultDomain: "user",
    remedy: `Fix ${call}() of environment '${place.environment}'; its sandbox was still answering, so the fault is not the host's.`,
    cause,
  });
}

export function environmentTimeout(call: string, place: Place, timeoutMs: number): CoppiceError {
  return new CoppiceError(`${call}() took more than ${timeoutMs} ms in ${where(place)}`, {
    code: "ENVIRONMENT_TIMEOUT",
    faultDomain: "user",
    remedy: "Raise the environment's stepTimeoutMs, or bound the wait inside it; its sandbox was still answering.",
  });
}

export function environmentValueInvalid(call: string, place: Place, problem: string, remedy: string): CoppiceError {
  return new CoppiceError(`${call}() of ${where(place)} ${problem}`, {
    code: "ENVIRONMENT_VALUE_INVALID",
    faultDomain: "user",
    remedy,
  });
}

export function trialLost(trial: number, attempts: number, cause: unknown): CoppiceError {
  return new CoppiceError(`Trial ${trial} was lost ${attempts} times, the last time because: ${reasonOf(cause)}`, {
    code: "TRIAL_LOST",
    faultDomain: "host",
    retryable: true,
    remedy: "Look at `coppice host status` and the host's log; the run's results up to here are in its ledger.",
    cause,
  });
}

export function trialLate(trial: number, deadlineMs: number): CoppiceError {
  return new CoppiceError(`Trial ${trial} did not end within ${deadlineMs} ms`, {
    code: "TRIAL_LATE",
    faultDomain: "host",
    retryable: true,
    remedy: "The host may be overloaded: use fewer workers, or a lower inFlight.",
  });
}

export function workerLost(cause: unknown): CoppiceError {
  return new CoppiceError(`A worker thread ended: ${reasonOf(cause)}`, {
    code: "WORKER_LOST",
    faultDomain: "host",
    retryable: true,
    remedy:
      "Look for process.exit() or an error outside of any call in the environment module, or for a lack of memory.",
    cause,
  });
}

export function replayMismatch(step: number, action: string | null): CoppiceError {
  const after = action === null ? "after the reset" : `after ${JSON.stringify(action)}`;
  return new CoppiceError(`A replay differs from its record at step ${step}, ${after}`, {
    code: "REPLAY_MISMATCH",
    faultDomain: "user",
    remedy:
      "The environment is not deterministic: find what it takes from clocks, kernel randomness or timing, and seed it.",
  });
}

export function aborted(cause?: unknown): CoppiceError {
  return new CoppiceError("The run was aborted", {
    code: "ABORTED",
    faultDomain: "user",
    remedy: "Nothing to repair: results up to the abort are in the ledger.",
    cause,
  });
}

export function ledgerForeign(path: string, problem: string): CoppiceError {
  return new CoppiceError(`The ledger ${path} ${problem}`, {
    code: "LEDGER_FOREIGN",
    faultDomain: "user",
    remedy: "Name another path, or move that file away.",
  });
}

export function ledgerTooNew(path: string, found: number, known: number): CoppiceError {
  return new CoppiceError(`The ledger ${path} has schema version ${found}; this version knows ${known}`, {
    code: "LEDGER_VERSION",
    faultDomain: "user",
    remedy: "Use the version of coppice that wrote it, or name another path.",
  });
}

export function ledgerFailed(path: string, cause: unknown): CoppiceError {
  const full = isSqliteCode(cause, "SQLITE_FULL") || isErrno(cause, "ENOSPC");
  return new CoppiceError(
    full ? `No space left for the ledger ${path}` : `The ledger ${path} failed: ${reasonOf(cause)}`,
    {
      code: full ? "LEDGER_FULL" : "LEDGER_FAILED",
      faultDomain: "store",
      retryable: full,
      remedy: full
        ? "Free disk space, or put the ledger on another disk."
        : "Check that the folder exists and can be written.",
      cause,
    },
  );
}

function isSqliteCode(error: unknown, code: string): boolean {
  return isErrno(error, code);
}

function isErrno(error: unknown, code: string): boolean {
  return error instanceof Error && (error as { code?: unknown }).code === code;
}
