/** Who has to act: the caller who passed the value, or whoever maintains the calling program. */
export type SearchFaultDomain = "user" | "bug";

/**
 * - `INVALID_ARGUMENT`: a configuration value or an argument is out of range; `field` names it.
 * - `INVALID_OUTCOME`: what was told of a trial contradicts itself or the trial; `field` names it. Nothing was changed.
 * - `UNKNOWN_TRIAL`: no such trial, or no such attempt of it, was ever asked. Nothing was changed.
 * - `INCOMPATIBLE_STATE`: a serialised state is damaged or of another format or algorithm.
 */
export type SearchErrorCode = "INVALID_ARGUMENT" | "INVALID_OUTCOME" | "UNKNOWN_TRIAL" | "INCOMPATIBLE_STATE";

/** What an error says besides its message. */
export interface SearchErrorOptions {
  readonly code: SearchErrorCode;
  readonly faultDomain: SearchFaultDomain;
  /** Path of the value at fault, such as `weights.seen.power` or `visits[3].reward`. */
  readonly field?: string;
  readonly remedy: string;
  readonly cause?: unknown;
}

/**
 * Every error that this folder throws on purpose. It has the fields of the package's `CoppiceError`, but is a class of its
 * own: `search` can be used without the rest.
 */
export class SearchError extends Error {
  override readonly name = "SearchError";
  readonly code: SearchErrorCode;
  readonly faultDomain: SearchFaultDomain;
  readonly field: string | undefined;
  readonly remedy: string;
  /** The same call with the same arguments fails again. */
  readonly retryable = false;
  readonly poisons = false;

  constructor(message: string, options: SearchErrorOptions) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code;
    this.faultDomain = options.faultDomain;
    this.field = options.field;
    this.remedy = options.remedy;
  }
}

/** `INVALID_ARGUMENT`, in the form "field is value, must be wanted". */
export function invalidArgument(field: string, value: unknown, wanted: string): SearchError {
  return new SearchError(`${field} is ${show(value)}, must be ${wanted}`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    field,
    remedy: `Give ${field} as ${wanted}.`,
  });
}

/** `INVALID_OUTCOME`, in the same form. */
export function invalidOutcome(field: string, value: unknown, wanted: string): SearchError {
  return new SearchError(`${field} of the outcome is ${show(value)}, must be ${wanted}`, {
    code: "INVALID_OUTCOME",
    faultDomain: "user",
    field,
    remedy: "Nothing was changed. Tell a correct outcome, or tell the trial as rejected.",
  });
}

/** Values may come from a guest: they are shown short, and as JSON so that control characters can not reach a terminal. */
function show(value: unknown): string {
  if (typeof value === "number" || typeof value === "boolean" || value === undefined || value === null)
    return String(value);
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}
