/** Who waits for a free place, first come, first served. */

import { abortError, onAbort } from "../abort.js";

export interface WaitOptions<T> {
  /** Takes the free place; runs at once when it is there, so that nobody can come between. */
  readonly take: () => T;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
  readonly onTimeout: () => Error;
}

interface Waiter {
  readonly admit: () => void;
  readonly reject: (error: Error) => void;
}

export class WaitingLine {
  readonly #waiters = new Set<Waiter>();

  get length(): number {
    return this.#waiters.size;
  }

  /** Resolves with what was taken. Rejects with `ABORTED`, or with what `onTimeout` makes. */
  wait<T>(options: WaitOptions<T>): Promise<T> {
    const { signal } = options;
    return new Promise<T>((resolve, reject) => {
      const finish = (settle: () => void): void => {
        if (this.#waiters.delete(waiter)) {
          clearTimeout(timer);
          offAbort();
          settle();
        }
      };
      const waiter: Waiter = {
        admit: () => finish(() => resolve(options.take())),
        reject: (error) => finish(() => reject(error)),
      };
      const giveUp = (): void => waiter.reject(abortError("Fork", signal));
      const offAbort = onAbort(signal, giveUp);
      const timer = setTimeout(() => waiter.reject(options.onTimeout()), options.timeoutMs);
      this.#waiters.add(waiter);
      if (signal?.aborted === true) {
        giveUp();
      }
    });
  }

  /** A place is free. */
  admitNext(): void {
    const [first] = this.#waiters;
    first?.admit();
  }

  rejectAll(error: Error): void {
    for (const waiter of [...this.#waiters]) {
      waiter.reject(error);
    }
  }
}
