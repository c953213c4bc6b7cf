/** Who has to act on an error. */
export type FaultDomain = "guest" | "host" | "store" | "queue" | "user" | "bug";

export interface CoppiceErrorOptions {
  readonly code: string;
  readonly faultDomain: FaultDomain;
  /** Whether the same call may succeed when it is made again. Default: false. */
  readonly retryable?: boolean;
  /** What the reader can do about it, as a sentence. Every error has one. */
  readonly remedy: string;
  /** Whether the sandbox that it happened in may be damaged: it is then closed, never pooled or checkpointed. Default: false. */
  readonly poisons?: boolean;
  readonly cause?: unknown;
}

/** Base of every error that this package throws on purpose. Codes are listed in `docs/errors.md`. */
export class CoppiceError extends Error {
  override readonly name = "CoppiceError";
  readonly code: string;
  readonly faultDomain: FaultDomain;
  readonly retryable: boolean;
  readonly remedy: string;
  readonly poisons: boolean;

  constructor(message: string, options: CoppiceErrorOptions) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code;
    this.faultDomain = options.faultDomain;
    this.retryable = options.retryable ?? false;
    this.remedy = options.remedy;
    this.poisons = options.poisons ?? false;
  }
}
