/**
 * What the benchmark compares forks with: a checkpoint's whole memory written to a file, and read into a new VMM process, as
 * systems do that restore snapshots. Of no use to anybody else.
 */

import type { CallOptions, HostAddress, Stages } from "./api.js";
import { dial } from "./client/handshake.js";
import { results } from "./client/messages.js";
import { createSession } from "./client/session.js";

export interface FullMemoryBaseline extends AsyncDisposable {
  /** Writes the file, which the session keeps until the next one or its end. Of templates without a disk only. */
  save(checkpoint: string, options?: CallOptions): Promise<{ readonly fileBytes: number; readonly stages: Stages }>;
  /** `mapped`: the file is mapped and read as the guest touches it, instead of all of it before the guest runs. */
  restore(
    from: { readonly checkpoint: string; readonly image: string; readonly mapped: boolean },
    options?: CallOptions,
  ): Promise<{ readonly sandbox: string; readonly stages: Stages }>;
}

/** Through a connection of its own, in the session of `address`: `host.sandboxes.get(id)` there has the sandboxes. */
export async function connectBaseline(address: HostAddress, options: CallOptions = {}): Promise<FullMemoryBaseline> {
  const { endpoint, token, session: id } = address;
  const connection = await dial({ endpoint, token, session: id, signal: options.signal });
  const session = createSession(connection);
  return {
    save: async (checkpoint, spec = {}) => {
      const schema = results.baselineSave;
      const answer = await session.request({ method: "baseline.save", params: { checkpoint }, schema, spec });
      return { fileBytes: answer.result.fileBytes, stages: answer.stages };
    },
    restore: async (params, spec = {}) => {
      const answer = await session.request({
        method: "baseline.restore",
        params,
        schema: results.boot,
        spec,
        undo: (late) => session.closeQuietly(late.sandbox),
      });
      return { sandbox: answer.result.sandbox, stages: answer.stages };
    },
    [Symbol.asyncDispose]: async () => await connection.close(),
  };
}
