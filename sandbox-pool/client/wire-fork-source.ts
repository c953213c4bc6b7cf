/** The warm pool's view of a host, over the wire. */

import type { ChildOptions, ForkedChild, ForkSource } from "../pool/fork-source.js";
import { failureToError, results } from "./messages.js";
import type { Session } from "./session.js";

/** `isRewound`: children of the checkpoint are to note what they write, so that they can be put back in place. */
export function createForkSource(session: Session, isRewound: (checkpoint: string) => boolean): ForkSource {
  return new WireForkSource(session, isRewound);
}

class WireForkSource implements ForkSource {
  readonly #session: Session;
  readonly #isRewound: (checkpoint: string) => boolean;

  constructor(session: Session, isRewound: (checkpoint: string) => boolean) {
    this.#session = session;
    this.#isRewound = isRewound;
  }

  async fork(checkpoint: string, count: number, options: ChildOptions): Promise<readonly ForkedChild[]> {
    const { keepRandomness, isReplacement: _, ...spec } = options;
    const answer = await this.#session.request({
      method: "sandbox.fork",
      params: { checkpoint, n: count, keepRandomness, rewindable: this.#isRewound(checkpoint) },
      schema: results.fork,
      spec,
      undo: (late) => this.#closeAll(late.children),
    });
    return toChildren(answer.result.children);
  }

  async forkAhead(checkpoint: string, count: number): Promise<readonly ForkedChild[]> {
    const answer = await this.#session.request({
      method: "sandbox.fork",
      params: { checkpoint, n: count, runAhead: true, rewindable: this.#isRewound(checkpoint) },
      schema: results.fork,
      undo: (late) => this.#closeAll(late.children),
    });
    return toChildren(answer.result.children);
  }

  async lease(sandbox: string): ReturnType<ForkSource["lease"]> {
    const answer = await this.#session.request({ method: "sandbox.lease", params: { sandbox }, schema: results.empty });
    return answer.stages;
  }

  async close(sandbox: string): Promise<void> {
    if (this.#session.connection.ended === undefined) {
      await this.#session.request({ method: "sandbox.close", params: { sandbox }, schema: results.empty });
    }
  }

  inFlight(): number {
    return this.#session.connection.inFlight;
  }

  async availableBytes(): Promise<number> {
    const answer = await this.#session.request({ method: "host.stats", params: {}, schema: results.hostStats });
    return answer.result.memory.availableBytes;
  }

  #closeAll(children: readonly WireChild[]): void {
    for (const child of children) {
      if (child.ok) {
        this.#session.closeQuietly(child.sandbox);
      }
    }
  }
}

type WireChild = (typeof results.fork)["_output"]["children"][number];

function toChildren(children: readonly WireChild[]): readonly ForkedChild[] {
  return children.map((child) =>
    child.ok
      ? { ok: true, sandbox: child.sandbox, stages: child.stages ?? [] }
      : { ok: false, error: failureToError(child.error) },
  );
}
