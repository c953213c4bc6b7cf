/** What the fake daemon owns: sessions, sandboxes, checkpoints. Each method of the protocol that changes them is here. */

import { randomUUID } from "node:crypto";

import type { FakeFailure } from "./fake-faults.js";
import { cloneMemory, emptyMemory, type FakeIdentity, type FakeMemory } from "./fake-guest.js";

export interface FakeSandbox {
  readonly id: string;
  readonly session: string;
  readonly checkpoint: string | undefined;
  readonly isRewindable: boolean;
  memory: FakeMemory;
  state: "ready" | "leased" | "poisoned";
  identity: FakeIdentity;
  generation: number;
}

export interface FakeCheckpoint {
  readonly id: string;
  /** undefined: the host's own, shared under `key`. */
  session: string | undefined;
  key: string | undefined;
  readonly name: string | undefined;
  readonly parent: string | undefined;
  readonly memory: FakeMemory;
  readonly identity: FakeIdentity;
  children: number;
}

/** A refusal as the daemon sends it. */
export class FakeDaemonError extends Error {
  readonly failure: FakeFailure;

  constructor(failure: FakeFailure) {
    super(failure.message);
    this.failure = failure;
  }
}

const MEMORY_BYTES = 8 * 1024 ** 3;
const CHILD_BYTES = 3 * 1024 ** 2;

function notFound(what: string, id: string): FakeDaemonError {
  return refusal(`${what.toUpperCase()}_NOT_FOUND`, `Host has no ${what} ${id}`);
}

export function refusal(code: string, message: string): FakeDaemonError {
  return new FakeDaemonError({ code, message, faultDomain: "user", retryable: false });
}

export class FakeHostState {
  readonly sandboxes = new Map<string, FakeSandbox>();
  readonly checkpoints = new Map<string, FakeCheckpoint>();
  readonly images = new Set<string>();
  readonly counters = {
    forks: 0,
    parks: 0,
    checkpoints: 0,
    rewinds: 0,
    boots: 0,
    closes: 0,
    discarded: 0,
    memoryLimitKills: 0,
    consoleDroppedBytes: 0,
  };
  /** A host with room for fewer refuses further children with `HOST_FULL`. */
  maxSandboxes = Number.POSITIVE_INFINITY;
  #lastId = 0;

  boot(session: string, image: string): FakeSandbox {
    if (!this.images.has(image)) {
      throw notFound("image", image);
    }
    this.#expectRoom();
    this.counters.boots += 1;
    return this.#addSandbox({ session, memory: emptyMemory(), state: "leased" });
  }

  fork(session: string, id: string, how: { readonly isAhead: boolean; readonly isRewindable: boolean }): FakeSandbox {
    const checkpoint = this.checkpoint(id, session);
    this.#expectRoom();
    this.counters.forks += 1;
    checkpoint.children += 1;
    const memory = cloneMemory(checkpoint.memory);
    const { isAhead, isRewindable } = how;
    return this.#addSandbox({ session, checkpoint: id, memory, isRewindable, state: isAhead ? "ready" : "leased" });
  }

  lease(session: string, id: string): FakeSandbox {
    const sandbox = this.sandbox(id, session);
    if (sandbox.state !== "ready") {
      throw refusal("SANDBOX_WRONG_STATE", `Sandbox ${id} is ${sandbox.state}, not ready`);
    }
    sandbox.state = "leased";
    sandbox.generation += 1;
    sandbox.identity = this.#identity();
    return sandbox;
  }

  /** Its memory is its checkpoint's again, and its identity new. */
  rewind(session: string, id: string): void {
    const sandbox = this.sandbox(id, session);
    if (!sandbox.isRewindable || sandbox.checkpoint === undefined) {
      throw refusal("NOT_REWINDABLE", `Sandbox ${id} was not forked to be rewound`);
    }
    sandbox.memory = cloneMemory(this.checkpoint(sandbox.checkpoint, session).memory);
    sandbox.generation += 1;
    sandbox.identity = this.#identity();
    this.counters.rewinds += 1;
  }

  park(session: string, id: string, name: string | undefined): FakeCheckpoint {
    const sandbox = this.sandbox(id, session);
    if (sandbox.state !== "leased") {
      throw refusal("SANDBOX_WRONG_STATE", `Sandbox ${id} is ${sandbox.state}, not leased`);
    }
    this.sandboxes.delete(id);
    this.counters.parks += 1;
    return this.#addCheckpoint(sandbox, name, sandbox.memory);
  }

  /** The sandbox goes on. */
  copy(session: string, id: string, name: string | undefined): FakeCheckpoint {
    const sandbox = this.sandbox(id, session);
    this.counters.checkpoints += 1;
    return this.#addCheckpoint(sandbox, name, cloneMemory(sandbox.memory));
  }

  #addCheckpoint(from: FakeSandbox, name: string | undefined, memory: FakeMemory): FakeCheckpoint {
    const checkpoint: FakeCheckpoint = {
      id: this.#id("cp"),
      session: from.session,
      key: undefined,
      name,
      parent: from.checkpoint,
      memory,
      identity: from.identity,
      children: 0,
    };
    this.checkpoints.set(checkpoint.id, checkpoint);
    return checkpoint;
  }

  close(id: string): void {
    if (this.sandboxes.delete(id)) {
      this.counters.closes += 1;
    }
  }

  drop(session: string, id: string): void {
    const checkpoint = this.checkpoints.get(id);
    if (checkpoint !== undefined && checkpoint.session === session) {
      this.checkpoints.delete(id);
    }
  }

  share(session: string, id: string, key: string): FakeCheckpoint {
    const given = this.checkpoint(id, session);
    const taken = this.lookup(key);
    if (taken !== undefined && taken !== given) {
      this.checkpoints.delete(id);
      return taken;
    }
    given.session = undefined;
    given.key = key;
    return given;
  }

  lookup(key: string): FakeCheckpoint | undefined {
    return [...this.checkpoints.values()].find((checkpoint) => checkpoint.key === key);
  }

  /** Closes what a session owned. */
  endSession(session: string): void {
    for (const sandbox of [...this.sandboxes.values()]) {
      if (sandbox.session === session) {
        this.close(sandbox.id);
      }
    }
    for (const checkpoint of [...this.checkpoints.values()]) {
      this.drop(session, checkpoint.id);
    }
  }

  sandbox(id: string, session: string): FakeSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined || sandbox.session !== session) {
      throw notFound("sandbox", id);
    }
    return sandbox;
  }

  checkpoint(id: string, session: string): FakeCheckpoint {
    const checkpoint = this.checkpoints.get(id);
    if (checkpoint === undefined || (checkpoint.session !== undefined && checkpoint.session !== session)) {
      throw notFound("checkpoint", id);
    }
    return checkpoint;
  }

  stats(sessions: number): object {
    const inState = (state: string): number =>
      [...this.sandboxes.values()].filter((sandbox) => sandbox.state === state).length;
    const shared = [...this.checkpoints.values()].filter((checkpoint) => checkpoint.session === undefined).length;
    const processes = this.sandboxes.size + this.checkpoints.size;
    return {
      sandboxes: { booting: 0, ready: inState("ready"), leased: inState("leased"), poisoned: inState("poisoned") },
      checkpoints: { hot: this.checkpoints.size, shared },
      sessions,
      memory: { totalBytes: MEMORY_BYTES, availableBytes: MEMORY_BYTES - processes * CHILD_BYTES },
      disk: { totalBytes: MEMORY_BYTES, availableBytes: MEMORY_BYTES },
      cgroups: 0,
      counters: this.counters,
    };
  }

  #expectRoom(): void {
    if (this.sandboxes.size >= this.maxSandboxes) {
      throw new FakeDaemonError({
        code: "HOST_FULL",
        message: `Host has room for ${this.maxSandboxes} sandboxes`,
        faultDomain: "host",
        retryable: true,
      });
    }
  }

  #addSandbox(
    facts: Pick<FakeSandbox, "session" | "memory" | "state"> &
      Partial<Pick<FakeSandbox, "checkpoint" | "isRewindable">>,
  ): FakeSandbox {
    const sandbox: FakeSandbox = {
      id: this.#id("sb"),
      checkpoint: undefined,
      isRewindable: false,
      identity: this.#identity(),
      generation: 1,
      ...facts,
    };
    this.sandboxes.set(sandbox.id, sandbox);
    return sandbox;
  }

  #identity(): FakeIdentity {
    const bootId = randomUUID();
    return { hostname: `sandbox-${bootId.slice(0, 8)}`, bootId, random: randomUUID() };
  }

  #id(prefix: string): string {
    this.#lastId += 1;
    return `${prefix}-${this.#lastId}`;
  }
}
