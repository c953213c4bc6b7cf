/** Whose fault it was: an environment's error ends the run, a host's is tried again and is never a reward. */

import { CoppiceError, remedyOf, type Sandbox } from "../../sandbox-pool/index.js";
import { DEFAULTS } from "../defaults.js";
import { aborted, environmentFailed, environmentTimeout, type Place, reasonOf } from "../errors.js";
import type { WireError } from "./protocol.js";

export class InfrastructureFault extends Error {
  constructor(override readonly cause: unknown) {
    super(reasonOf(cause));
  }
}

export interface EnvironmentCall<T> {
  readonly call: "warmUp" | "reset" | "step" | "score";
  readonly place: Place;
  readonly sandbox: Sandbox;
  readonly timeoutMs: number;
  /** Ends the call from outside. */
  readonly signal: AbortSignal;
  readonly body: (signal: AbortSignal) => Promise<T>;
}

/**
 * Runs user code that drives a sandbox. Throws `ABORTED`, an `InfrastructureFault`, or an error that names the
 * environment; which of the two is decided by asking the sandbox whether it still answers.
 */
export async function callEnvironment<T>(options: EnvironmentCall<T>): Promise<T> {
  if (options.signal.aborted) throw aborted();
  const controller = new AbortController();
  let end: (reason: "timeout" | "abort") => void = () => {};
  const ended = new Promise<"timeout" | "abort">((resolve) => {
    end = resolve;
  });
  const onAbort = (): void => end("abort");
  options.signal.addEventListener("abort", onAbort, { once: true });
  const timer = setTimeout(() => end("timeout"), options.timeoutMs);
  try {
    const work = (async () => ({ value: await options.body(controller.signal) }))();
    // The loser of the race may still reject, when nobody listens any more.
    work.catch(() => {});
    const first = await Promise.race([work, ended]);
    if (typeof first === "object") return first.value;
    controller.abort();
    if (first === "abort") throw aborted();
    if (!(await answers(options.sandbox))) throw new InfrastructureFault(new Error("the sandbox stopped answering"));
    throw environmentTimeout(options.call, options.place, options.timeoutMs);
  } catch (error) {
    throw await judge(error, options);
  } finally {
    clearTimeout(timer);
    options.signal.removeEventListener("abort", onAbort);
  }
}

async function judge<T>(error: unknown, options: EnvironmentCall<T>): Promise<unknown> {
  if (error instanceof InfrastructureFault) return error;
  if (options.signal.aborted) return aborted(error);
  if (error instanceof CoppiceError) {
    if (error.code === "ENVIRONMENT_TIMEOUT" || error.code === "ENVIRONMENT_VALUE_INVALID") return error;
    if (isHostFault(error)) return new InfrastructureFault(error);
  }
  if (!(await answers(options.sandbox))) return new InfrastructureFault(error);
  return environmentFailed(options.call, options.place, error);
}

export function isHostFault(error: CoppiceError): boolean {
  return (
    error.poisons || error.faultDomain === "host" || error.faultDomain === "store" || error.faultDomain === "queue"
  );
}

async function answers(sandbox: Sandbox): Promise<boolean> {
  try {
    await sandbox.ping({ deadlineMs: DEFAULTS.aliveCheckMs });
    return true;
  } catch {
    return false;
  }
}

export function toWireError(error: unknown): WireError {
  const source = error instanceof InfrastructureFault ? error.cause : error;
  if (source instanceof CoppiceError) {
    const { message, code, faultDomain, retryable, remedy } = source;
    return { message, code, faultDomain, retryable, remedy };
  }
  const remedy = remedyOf("UNEXPECTED");
  return { message: reasonOf(source), code: "UNEXPECTED", faultDomain: "bug", retryable: false, remedy };
}

export function fromWireError(error: WireError): CoppiceError {
  const { message, ...options } = error;
  return new CoppiceError(message, options);
}
