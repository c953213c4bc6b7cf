/** A host for pool tests, without sockets: children are numbers, and each remembers who wrote into it. */

import type { ChildOptions, ForkedChild, ForkSource } from "../../sandbox-pool/pool/fork-source.js";

export interface FakeChild {
  readonly checkpoint: string;
  isWaiting: boolean;
  isClosed: boolean;
  /** What its owner wrote. */
  token: string | undefined;
}

export interface FakeForkSourceOptions {
  /** Milliseconds of each call, drawn anew for each. */
  readonly delay?: () => number;
}

export class FakeForkSource implements ForkSource {
  readonly children = new Map<string, FakeChild>();
  readonly calls: string[] = [];
  memoryBytes = Number.MAX_SAFE_INTEGER;
  /** Failures to come, by method. */
  readonly failures: Record<"fork" | "forkAhead" | "lease" | "close", Error[]> = {
    fork: [],
    forkAhead: [],
    lease: [],
    close: [],
  };
  /** Most children alive at one time. */
  maxAlive = 0;
  otherCalls = 0;
  readonly #delay: () => number;
  #inFlight = 0;

  constructor(options: FakeForkSourceOptions = {}) {
    this.#delay = options.delay ?? (() => 0);
  }

  get alive(): number {
    return [...this.children.values()].filter((child) => !child.isClosed).length;
  }

  async fork(checkpoint: string, count: number, options: ChildOptions): Promise<readonly ForkedChild[]> {
    await this.#work("fork", options.signal);
    return this.#make(checkpoint, count, false);
  }

  async forkAhead(checkpoint: string, count: number): Promise<readonly ForkedChild[]> {
    await this.#work("forkAhead", undefined);
    return this.#make(checkpoint, count, true);
  }

  async lease(sandbox: string): ReturnType<ForkSource["lease"]> {
    await this.#work("lease", undefined);
    const child = this.child(sandbox);
    if (child.isClosed || !child.isWaiting) {
      throw new Error(`Child ${sandbox} does not wait`);
    }
    child.isWaiting = false;
    return [["lease", 1]];
  }

  async close(sandbox: string): Promise<void> {
    await this.#work("close", undefined);
    this.child(sandbox).isClosed = true;
  }

  inFlight(): number {
    return this.#inFlight + this.otherCalls;
  }

  availableBytes(): Promise<number> {
    return Promise.resolve(this.memoryBytes);
  }

  child(sandbox: string): FakeChild {
    const child = this.children.get(sandbox);
    if (child === undefined) {
      throw new Error(`There is no child ${sandbox}`);
    }
    return child;
  }

  #make(checkpoint: string, count: number, isWaiting: boolean): readonly ForkedChild[] {
    const made = Array.from({ length: count }, (): ForkedChild => {
      const sandbox = `child-${this.children.size + 1}`;
      this.children.set(sandbox, { checkpoint, isWaiting, isClosed: false, token: undefined });
      return { ok: true, sandbox, stages: [["fork", 1]] };
    });
    this.maxAlive = Math.max(this.maxAlive, this.alive);
    return made;
  }

  async #work(method: keyof FakeForkSource["failures"], signal: AbortSignal | undefined): Promise<void> {
    this.calls.push(method);
    this.#inFlight += 1;
    try {
      await new Promise((resolve) => setTimeout(resolve, this.#delay()));
    } finally {
      this.#inFlight -= 1;
    }
    signal?.throwIfAborted();
    const failure = this.failures[method].shift();
    if (failure !== undefined) {
      throw failure;
    }
  }
}
