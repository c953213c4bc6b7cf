/** Abort signals: one listener a signal however many calls share it, and one form of the error. */

import { CoppiceError } from "./errors.js";
import { remedyOf } from "./remedies.js";

/**
 * Node warns of a leak from the eleventh listener on, and a run's one signal is shared by every call in flight. So each
 * signal gets a single listener, which calls all that wait.
 */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `callback` when the signal is aborted, never at once. Gives what takes it off again; more than once is a no-op. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal === undefined) {
    return () => undefined;
  }
  const callbacks = waiting.get(signal) ?? listen(signal);
  // Wrapped, so that one callback given twice is two entries.
  const entry = (): void => callback();
  callbacks.add(entry);
  return () => {
    callbacks.delete(entry);
  };
}

function listen(signal: AbortSignal): Set<() => void> {
  const callbacks = new Set<() => void>();
  waiting.set(signal, callbacks);
  signal.addEventListener(
    "abort",
    () => {
      for (const callback of [...callbacks]) {
        callback();
      }
      callbacks.clear();
    },
    { once: true },
  );
  return callbacks;
}

/** `what` was aborted: a clause such as `Fork`. */
export function abortError(what: string, signal: AbortSignal | undefined): CoppiceError {
  const [code, faultDomain] = ["ABORTED", "user"] as const;
  return new CoppiceError(`${what} was aborted`, { code, faultDomain, remedy: remedyOf(code), cause: signal?.reason });
}
