/** Ctrl-C and SIGTERM: the first asks everything to end, a second one ends at once. */

import { EXIT } from "./exit-codes.js";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** From a signal to the end of the process, whatever hangs. */
const LIMIT_MS = 4_500;

export interface Interrupts extends Disposable {
  readonly signal: AbortSignal;
}

export function listenForInterrupts(log: (text: string) => void): Interrupts {
  const controller = new AbortController();
  const onSignal = (name: NodeJS.Signals): void => {
    if (controller.signal.aborted) process.exit(EXIT.interrupted);
    log(`${name}: cleaning up (once more to end at once)`);
    setTimeout(() => process.exit(EXIT.interrupted), LIMIT_MS).unref();
    controller.abort(new Error(name));
  };
  for (const name of SIGNALS) process.on(name, onSignal);
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      for (const name of SIGNALS) process.off(name, onSignal);
    },
  };
}
