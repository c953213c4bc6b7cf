/** The process's own output, and what becomes of a command when it can't be written. */

import { CoppiceError } from "../../sandbox-pool/index.js";
import { outputFailed } from "./files.js";

export interface Output {
  /** Aborted when a result can't be written: nobody reads it, or it has no room. Its reason is `failure`. */
  readonly signal: AbortSignal;
  readonly failure: CoppiceError | undefined;
  /** Resolves when all that was written so far has left, or has failed. */
  flushed(): Promise<void>;
}

export function watchOutput(
  stdout: NodeJS.WritableStream = process.stdout,
  stderr: NodeJS.WritableStream = process.stderr,
): Output {
  const controller = new AbortController();
  let failure: CoppiceError | undefined;
  const onError = (cause: Error): void => {
    if (failure !== undefined) return;
    failure = outputFailed("stdout", cause);
    controller.abort(failure);
  };
  // Listened to until the process ends: an error that nobody hears would end it with a stack trace.
  stdout.on("error", onError);
  // There is nobody left to tell, and the work may still be worth it.
  stderr.on("error", () => undefined);
  return {
    signal: controller.signal,
    get failure() {
      return failure;
    },
    // The event of an error comes after what is called back with it.
    flushed: () => new Promise((resolve) => void stdout.write("", () => setImmediate(resolve))),
  };
}

/** Whoever read the output has left, as `head` does: no failure, and nobody wants the rest. */
export function isClosedPipe(error: unknown): boolean {
  const cause = error instanceof CoppiceError && error.code === "OUTPUT_FAILED" ? error.cause : undefined;
  return (cause as NodeJS.ErrnoException | undefined)?.code === "EPIPE";
}

/** Bytes as they are; resolves when they have left. Throws `OUTPUT_FAILED`. */
export async function writeStream(
  stream: NodeJS.WritableStream,
  name: "stdout" | "stderr",
  piece: Uint8Array,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    stream.write(piece, (error) => (error ? reject(outputFailed(name, error)) : resolve()));
  });
}
