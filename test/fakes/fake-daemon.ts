/**
 * A daemon without virtual machines: it speaks the real protocol over a real unix socket, and its guests are plain data.
 * For tests of searches, handles and faults only. What a real guest does, only a real guest shows.
 */

import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { ConnectOptions, Host, HostAddress, ImageBuilder } from "../../sandbox-pool/api.js";
import { connectHost } from "../../sandbox-pool/connect.js";
import { FakeConnection, type FakeDaemonSide, type FakeRequest, toFailure } from "./fake-connection.js";
import { type Fault, type FaultAction, FaultPlan, failureOf } from "./fake-faults.js";
import { callFakeGuest, type FakeCommand, type FakeProgram, type FakeSoftware } from "./fake-guest.js";
import { FakeDaemonError, FakeHostState, type FakeSandbox, refusal } from "./fake-host-state.js";

/** As of a daemon without cgroups. */
const LIMIT_MEANS = { memory: "measured", cpuShare: "nice", cpuMax: "none", reason: "there are none" };

export interface FakeDaemonOptions {
  /** Terminal programs by the first word of argv. */
  readonly programs?: Readonly<Record<string, FakeProgram>>;
  /** Commands for `exec` by the first word of argv, beside the built-in ones. */
  readonly commands?: Readonly<Record<string, FakeCommand>>;
  /** Sandboxes that fit on the host. Default: no limit. */
  readonly maxSandboxes?: number;
}

export interface FakeDaemon extends AsyncDisposable {
  /** Of a session that the daemon made for the test. It ends when its last connection does; `newSession` makes another. */
  readonly address: HostAddress;
  readonly state: FakeHostState;
  /** Methods that were called, in order; `sandbox.call` as `sandbox.call:op`. */
  readonly calls: readonly string[];
  newSession(): HostAddress;
  /** A host in a session of its own, with an image builder that builds nothing. */
  connect(options?: Omit<ConnectOptions, "kind" | "token" | "join">): Promise<Host>;
  inject(fault: Fault): void;
  clearFaults(): void;
  /** Ends all connections, as a daemon that is killed. New ones are accepted. */
  dropConnections(): void;
  /** To all clients of all sessions. */
  sendRaw(bytes: Uint8Array): void;
  /** A guest ends its VM. */
  endGuest(sandbox: string): void;
  stop(): Promise<void>;
}

/** Makes an image of every specification, without building anything. Give it to `connectHost` beside the fake's address. */
export const fakeImageBuilder: ImageBuilder = (spec) => {
  const id = `sha256:${createHash("sha256").update(JSON.stringify(spec)).digest("hex")}`;
  return Promise.resolve({ id, path: `/nowhere/${id}` });
};

export async function startFakeDaemon(options: FakeDaemonOptions = {}): Promise<FakeDaemon> {
  const directory = await mkdtemp(join(tmpdir(), "coppice-fake-"));
  const daemon = new SocketDaemon(directory, options);
  await daemon.listen();
  return daemon;
}

class SocketDaemon implements FakeDaemon, FakeDaemonSide {
  readonly state = new FakeHostState();
  readonly calls: string[] = [];
  readonly address: HostAddress;
  readonly #directory: string;
  readonly #socketPath: string;
  readonly #software: FakeSoftware;
  readonly #faults = new FaultPlan();
  readonly #server: Server;
  readonly #sessions = new Map<string, Set<FakeConnection>>();

  constructor(directory: string, options: FakeDaemonOptions) {
    this.#directory = directory;
    this.#socketPath = join(directory, "daemon.sock");
    this.#software = { programs: options.programs ?? {}, commands: options.commands ?? {} };
    this.state.maxSandboxes = options.maxSandboxes ?? Number.POSITIVE_INFINITY;
    this.address = this.newSession();
    this.#server = createServer((socket) => new FakeConnection(socket, this));
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(this.#socketPath, resolve);
    });
  }

  newSession(): HostAddress {
    const session = `session-${randomUUID()}`;
    this.#sessions.set(session, new Set());
    return { kind: "kvm", endpoint: { unix: this.#socketPath }, session };
  }

  async connect(options: Omit<ConnectOptions, "kind" | "token" | "join"> = {}): Promise<Host> {
    return await connectHost({ imageBuilder: fakeImageBuilder, ...options, join: this.newSession() });
  }

  inject(fault: Fault): void {
    this.#faults.inject(fault);
  }

  clearFaults(): void {
    this.#faults.clear();
  }

  dropConnections(): void {
    for (const connection of this.#connections()) {
      connection.drop();
    }
  }

  sendRaw(bytes: Uint8Array): void {
    for (const connection of this.#connections()) {
      connection.sendRaw(bytes);
    }
  }

  endGuest(id: string): void {
    const sandbox = this.state.sandboxes.get(id);
    if (sandbox === undefined) {
      return;
    }
    sandbox.state = "poisoned";
    const params = { sandbox: id, reason: "shutdown", detail: "guest powered off", console: "Power down\n" };
    for (const connection of this.#sessions.get(sandbox.session) ?? []) {
      connection.send({ event: "sandbox.ended", params });
    }
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.dropConnections();
    await closed;
    await rm(this.#directory, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  enter(connection: FakeConnection, session: string | undefined): string {
    const name = session ?? `session-${randomUUID()}`;
    const connections = this.#sessions.get(name) ?? (session === undefined ? new Set<FakeConnection>() : undefined);
    if (connections === undefined) {
      const message = `There is no session ${name}`;
      throw new FakeDaemonError({ code: "SESSION_NOT_FOUND", message, faultDomain: "user", retryable: false });
    }
    this.#sessions.set(name, connections.add(connection));
    return name;
  }

  leave(connection: FakeConnection, session: string): void {
    const connections = this.#sessions.get(session);
    connections?.delete(connection);
    if (connections?.size === 0) {
      this.#sessions.delete(session);
      this.state.endSession(session);
    }
  }

  async handle(request: FakeRequest): Promise<unknown> {
    const op = request.method === "sandbox.call" ? String(request.params["op"]) : undefined;
    this.calls.push(op === undefined ? request.method : `${request.method}:${op}`);
    const actions = this.#faults.take(request.method, op);
    for (const action of actions) {
      const answer = await this.#befall(action, request);
      if (answer !== undefined) {
        return answer.result;
      }
    }
    if (request.signal.aborted) {
      throw request.signal.reason;
    }
    return await this.#answer(request, actions);
  }

  /** An answer where the fault is one. */
  async #befall(action: FaultAction, request: FakeRequest): Promise<{ readonly result: unknown } | undefined> {
    switch (action.kind) {
      case "delay":
        await new Promise((resolve) => setTimeout(resolve, action.ms));
        return undefined;
      case "hang":
        return await new Promise(() => undefined);
      case "fail":
        throw new FakeDaemonError(failureOf(action.failure));
      case "drop":
        request.drop();
        return await new Promise(() => undefined);
      case "reply":
        return { result: action.result };
      case "endGuest":
        this.endGuest(String(request.params["sandbox"]));
        throw sandboxEnded(String(request.params["sandbox"]));
      case "failChild":
        return undefined;
    }
  }

  async #answer(request: FakeRequest, actions: readonly FaultAction[]): Promise<unknown> {
    const { method, params, session } = request;
    const id = String(params["sandbox"] ?? params["checkpoint"] ?? params["id"]);
    switch (method) {
      case "host.info":
        return {
          kind: "kvm",
          version: "fake",
          pid: process.pid,
          memoryBytes: 8 * 1024 ** 3,
          cpus: 2,
          uptimeMs: 1,
          limits: LIMIT_MEANS,
        };
      case "host.metrics":
        return { text: `coppice_boots_total ${this.state.counters.boots}\n` };
      case "host.stats":
        return this.state.stats(this.#sessions.size);
      case "image.attach":
        this.state.images.add(id);
        return {};
      case "image.list":
        return { images: [...this.state.images].map((image) => ({ id: image })) };
      case "sandbox.boot":
        return { sandbox: this.state.boot(session, String(params["image"])).id };
      case "sandbox.fork":
        return { children: this.#fork(request, actions) };
      case "sandbox.lease":
        return { generation: this.state.lease(session, id).generation };
      case "sandbox.call":
        return await this.#call(this.state.sandbox(id, session), request);
      case "sandbox.park": {
        const checkpoint = this.state.park(session, id, params["name"] as string | undefined);
        return { checkpoint: checkpoint.id, dirtyPages: dirtyPages(checkpoint.memory), dirtyBlocks: 7 };
      }
      case "sandbox.checkpoint": {
        const checkpoint = this.state.copy(session, id, params["name"] as string | undefined);
        return { checkpoint: checkpoint.id, dirtyPages: dirtyPages(checkpoint.memory), dirtyBlocks: 7 };
      }
      case "sandbox.rewind":
        this.state.rewind(session, id);
        return { dirtyPages: 3 };
      case "sandbox.close":
        this.state.close(id);
        return {};
      case "sandbox.console":
        return { data: Buffer.from(`console of ${this.state.sandbox(id, session).id}\n`) };
      case "checkpoint.drop":
        this.state.drop(session, id);
        return {};
      case "checkpoint.delta": {
        const { parent } = this.state.checkpoint(id, session);
        if (parent === undefined) throw refusal("NO_PARENT", `Checkpoint ${id} has no parent`);
        return { parent, pages: [[3, 2]], blocks: [] };
      }
      case "checkpoint.share":
        return { checkpoint: this.state.share(session, id, String(params["key"])).id };
      case "checkpoint.lookup":
        return { checkpoint: this.state.lookup(String(params["key"]))?.id ?? null };
      case "memory.usage":
        return { privateBytes: 4_096, totalBytes: 8_192, diskBytes: 12_288 };
      default: {
        const message = `Daemon knows no method ${method}`;
        throw new FakeDaemonError({ code: "UNKNOWN_METHOD", message, faultDomain: "bug", retryable: false });
      }
    }
  }

  #fork(request: FakeRequest, actions: readonly FaultAction[]): unknown[] {
    const { params, session } = request;
    const checkpoint = String(params["checkpoint"]);
    // A checkpoint that does not exist is the call's failure, not each child's.
    this.state.checkpoint(checkpoint, session);
    return Array.from({ length: Number(params["n"]) }, (_, index) => {
      const fault = actions.find((action) => action.kind === "failChild" && action.index === index);
      try {
        if (fault?.kind === "failChild") {
          throw new FakeDaemonError(failureOf(fault.failure));
        }
        const [isAhead, isRewindable] = [params["runAhead"] === true, params["rewindable"] === true];
        return { ok: true, sandbox: this.state.fork(session, checkpoint, { isAhead, isRewindable }).id };
      } catch (error) {
        return { ok: false, error: toFailure(error) };
      }
    });
  }

  async #call(sandbox: FakeSandbox, request: FakeRequest): Promise<unknown> {
    if (sandbox.state === "ready") {
      throw refusal("SANDBOX_WRONG_STATE", `Sandbox ${sandbox.id} is ready; this needs one that is leased`);
    }
    if (sandbox.state !== "leased") {
      throw sandboxEnded(sandbox.id);
    }
    return await callFakeGuest(sandbox, this.#software, {
      op: String(request.params["op"]),
      args: (request.params["args"] ?? {}) as Record<string, unknown>,
      emit: request.emit,
      signal: request.signal,
    });
  }

  *#connections(): Generator<FakeConnection> {
    for (const connections of [...this.#sessions.values()]) {
      yield* [...connections];
    }
  }
}

function dirtyPages(memory: object): number {
  return Math.ceil(JSON.stringify(memory).length / 4_096);
}

function sandboxEnded(id: string): FakeDaemonError {
  return new FakeDaemonError({
    code: "SANDBOX_LOST",
    message: `Guest of sandbox ${id} has ended`,
    faultDomain: "guest",
    retryable: false,
    poisons: true,
  });
}
