/** Ctrl-C and SIGTERM: the first asks everything to end, a second one ends at once. */

import { EXIT } from "./exit-codes.js";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** A terminal gives its signals to a whole group of processes, and wrappers such as npm pass them on: one key, two signals. */
const SAME_MS = 150;

/** From a signal to the end of the process, whatever hangs. */
const LIMIT_MS = 4_500;

/** Takes a signal, or leaves it: false is "end everything". */
export type SignalHandler = (name: NodeJS.Signals) => boolean;

export interface Interrupts extends Disposable {
  readonly signal: AbortSignal;
  /** Until it is disposed, `handler` is asked first. */
  redirect(handler: SignalHandler): Disposable;
}

export function listenForInterrupts(log: (text: string) => void): Interrupts {
  const controller = new AbortController();
  let handler: SignalHandler | undefined;
  const lastAt = new Map<NodeJS.Signals, number>();
  const onSignal = (name: NodeJS.Signals): void => {
    const now = performance.now();
    const isRepeated = now - (lastAt.get(name) ?? Number.NEGATIVE_INFINITY) < SAME_MS;
    lastAt.set(name, now);
    if (isRepeated) return;
    if (!controller.signal.aborted && handler?.(name) === true) return;
    if (controller.signal.aborted) process.exit(EXIT.interrupted);
    log(`${name}: cleaning up (once more to end at once)`);
    setTimeout(() => process.exit(EXIT.interrupted), LIMIT_MS).unref();
    controller.abort(new Error(name));
  };
  for (const name of SIGNALS) process.on(name, onSignal);
  return {
    signal: controller.signal,
    redirect: (wanted) => {
      handler = wanted;
      return {
        [Symbol.dispose]: () => {
          if (handler === wanted) handler = undefined;
        },
      };
    },
    [Symbol.dispose]: () => {
      for (const name of SIGNALS) process.off(name, onSignal);
    },
  };
}
