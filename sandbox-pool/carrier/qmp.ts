/** A few commands to QEMU, in its own protocol (QMP): one connection for one errand, since QEMU serves one at a time. */

import { connect } from "node:net";
import { createInterface } from "node:readline";

import { CoppiceError } from "../errors.js";

export interface QmpCommand {
  readonly execute: string;
  readonly arguments?: object;
  /** Parts of an error's text that mean that the work was done before. */
  readonly doneBefore?: RegExp;
}

interface QmpMessage {
  readonly QMP?: unknown;
  readonly return?: unknown;
  readonly error?: { readonly class: string; readonly desc: string };
}

/** Runs the commands in order; gives their results. Throws `HOST_UNRESPONSIVE` and `CARRIER_REFUSED`. */
export async function qmp(
  socketPath: string,
  commands: readonly QmpCommand[],
  timeoutMs: number,
): Promise<readonly unknown[]> {
  const socket = connect(socketPath);
  const timer = setTimeout(() => socket.destroy(new Error(`No answer within ${timeoutMs} ms`)), timeoutMs);
  // The interface does not pass on the socket's errors: its end is seen as the end of lines.
  let failure: unknown;
  socket.on("error", (error) => {
    failure = error;
  });
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  const read = async (): Promise<QmpMessage> => {
    for (;;) {
      const line = await lines.next();
      if (line.done === true) {
        throw unresponsive(failure ?? new Error("QEMU closed the connection"));
      }
      const message = JSON.parse(line.value) as QmpMessage;
      if (message.QMP !== undefined || message.return !== undefined || message.error !== undefined) {
        return message;
      }
    }
  };
  try {
    await read();
    const answers: unknown[] = [];
    for (const command of [{ execute: "qmp_capabilities" } as QmpCommand, ...commands]) {
      socket.write(`${JSON.stringify({ execute: command.execute, arguments: command.arguments ?? {} })}\n`);
      const answer = await read();
      if (answer.error !== undefined && command.doneBefore?.test(answer.error.desc) !== true) {
        throw refused(command.execute, answer.error.desc);
      }
      answers.push(answer.return);
    }
    return answers.slice(1);
  } catch (error) {
    throw error instanceof CoppiceError ? error : unresponsive(error);
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

function unresponsive(cause: unknown): CoppiceError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new CoppiceError(`Carrier's QEMU does not answer: ${reason}`, {
    code: "HOST_UNRESPONSIVE",
    faultDomain: "host",
    retryable: true,
    remedy: "Stop it and try again: coppice host stop",
    cause,
  });
}

function refused(command: string, description: string): CoppiceError {
  const isFull = /no slot\/function available|No free slot|PCI: no/i.test(description);
  return new CoppiceError(
    isFull ? "Carrier has no room for another image" : `Carrier refused ${command}: ${description}`,
    {
      code: isFull ? "CARRIER_IMAGES_FULL" : "CARRIER_REFUSED",
      faultDomain: "host",
      remedy: isFull ? "Stop the carrier and start again: coppice host stop" : "Read QEMU's own message above.",
    },
  );
}
