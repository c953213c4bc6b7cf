/** What the handles of one connection share: checked calls, and who must hear of a guest's end. */

import type { z } from "zod";

import type { Stages } from "../api.js";
import { CoppiceError } from "../errors.js";
import type { CallSpec, Chunk, Connection } from "./connection.js";
import { expectMessage, results, sandboxEndedSchema } from "./messages.js";

export interface Answer<T> {
  readonly result: T;
  readonly stages: Stages;
  readonly chunks: readonly Chunk[];
}

export interface Request<T> {
  readonly method: string;
  readonly params: object;
  readonly schema: z.ZodType<T>;
  readonly spec?: CallSpec;
  /** Ends what the call made, when its caller has given it up before the answer came. */
  readonly undo?: (result: T) => void;
}

/** A sandbox whose handle wants to know that the guest has ended. */
export interface GuestWatcher {
  /** `lastWords`: the end of its console. */
  guestEnded(error: CoppiceError, lastWords: string): void;
}

export interface Session {
  readonly connection: Connection;
  request<T>(request: Request<T>): Promise<Answer<T>>;
  /** Closes a sandbox that no handle will close; failures are of no interest: the session's end closes it too. */
  closeQuietly(sandbox: string): void;
  dropQuietly(checkpoint: string): void;
  watch(sandbox: string, watcher: GuestWatcher): void;
  unwatch(sandbox: string): void;
}

export function createSession(connection: Connection): Session {
  return new ConnectionSession(connection);
}

class ConnectionSession implements Session {
  readonly connection: Connection;
  readonly #watchers = new Map<string, GuestWatcher>();

  constructor(connection: Connection) {
    this.connection = connection;
    connection.subscribe({
      onEvent: (event, params) => {
        if (event === "sandbox.ended") {
          this.#guestEnded(params);
        }
      },
    });
  }

  async request<T>(request: Request<T>): Promise<Answer<T>> {
    const { undo } = request;
    const reply = await this.connection.call(request.method, request.params, {
      ...request.spec,
      onLate: undo && ((late) => undo(expectMessage(request.schema, late.result, request.method))),
    });
    return { ...reply, result: expectMessage(request.schema, reply.result, request.method) };
  }

  closeQuietly(sandbox: string): void {
    this.request({ method: "sandbox.close", params: { sandbox }, schema: results.empty }).catch(() => undefined);
  }

  dropQuietly(checkpoint: string): void {
    this.request({ method: "checkpoint.drop", params: { checkpoint }, schema: results.empty }).catch(() => undefined);
  }

  watch(sandbox: string, watcher: GuestWatcher): void {
    this.#watchers.set(sandbox, watcher);
  }

  unwatch(sandbox: string): void {
    this.#watchers.delete(sandbox);
  }

  #guestEnded(params: unknown): void {
    const ended = expectMessage(sandboxEndedSchema, params, "event sandbox.ended");
    const detail = ended.detail === "" ? "" : `: ${ended.detail}`;
    const isHosts = ended.reason === "vmmDied";
    this.#watchers.get(ended.sandbox)?.guestEnded(
      new CoppiceError(`Guest of sandbox ${ended.sandbox} has ended (${ended.reason})${detail}`, {
        code: "SANDBOX_LOST",
        faultDomain: isHosts ? "host" : "guest",
        retryable: isHosts,
        remedy: "Rewind it, or fork the checkpoint again; sandbox.console() shows the guest's last words.",
        poisons: true,
      }),
      ended.console,
    );
  }
}
