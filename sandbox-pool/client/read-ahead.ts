/** Sources that a user gives: read from the first moment on, and let go of whatever they are in the middle of. */

import { Readable } from "node:stream";

export interface ReadAhead<T> extends AsyncIterableIterator<T> {
  /** Not waited for: a source may be in the middle of a read that never ends. */
  stop(): void;
}

/**
 * Asks for the first piece at once. A stream of a file that can't be opened reports that soon, whether anybody listens or
 * not: an `error` event without a listener ends the process.
 */
export function readAhead<T>(source: AsyncIterable<T>): ReadAhead<T> {
  const iterator = source[Symbol.asyncIterator]();
  let first: Promise<IteratorResult<T>> | undefined = iterator.next();
  // Whoever asks for the first piece is told.
  first.catch(() => undefined);
  const end = async (): Promise<IteratorResult<T>> => {
    await iterator.return?.();
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next: () => {
      const next = first ?? iterator.next();
      first = undefined;
      return next;
    },
    return: end,
    stop: () => {
      // An iterator's `return` waits for the read that it is in; an open pipe would keep the process alive.
      if (source instanceof Readable) source.destroy();
      // Nobody reads any more.
      end().catch(() => undefined);
    },
  };
}
