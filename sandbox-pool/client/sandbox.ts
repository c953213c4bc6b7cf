/** Handle on one running microVM. */

import { abortError } from "../abort.js";
import type {
  CallOptions,
  Checkpoint,
  Command,
  ExecOptions,
  Guest,
  GuestProcess,
  Limits,
  ProcessRow,
  Pty,
  PtyOpenOptions,
  RewindOptions,
  RewindResult,
  Sandbox,
  SandboxFiles,
  Stages,
} from "../api.js";
import { CoppiceError } from "../errors.js";
import type { AgentCall } from "./agent-call.js";
import type { CheckpointFacts } from "./checkpoint.js";
import { createGuest } from "./guest.js";
import type { Life } from "./life.js";
import { results } from "./messages.js";
import { LifeLost, type Rewinder } from "./rewinder.js";
import { mayMove, moveSandbox, type SandboxState } from "./sandbox-state.js";
import type { GuestWatcher, Session } from "./session.js";
import { checkInput, inputs } from "./validation.js";

export interface SandboxParts {
  readonly session: Session;
  readonly life: Life;
  readonly rewind: Rewinder["rewind"];
  /** Makes the handle of the checkpoint that the sandbox became. */
  readonly toCheckpoint: (facts: CheckpointFacts) => Checkpoint;
}

export function createSandbox(parts: SandboxParts): Sandbox {
  return new SandboxHandle(parts);
}

class SandboxHandle implements Sandbox, GuestWatcher {
  readonly #guest: Guest;
  readonly #parts: SandboxParts;
  readonly #session: Session;
  #life: Life;
  #stages: Stages;
  #state: SandboxState = "live";
  /** While it is rewound: the state it goes back to where that fails. */
  #fallback: "live" | "poisoned" | "ended" | undefined;
  /** Its limits are not its checkpoint's any more, with which a rewound life begins. */
  #hasOwnLimits = false;
  #lastWords: string | undefined;
  /** Why it can't be used, in states `poisoned` and `ended`. */
  #reason: CoppiceError | undefined;
  #closing: Promise<void> | undefined;

  constructor(parts: SandboxParts) {
    this.#parts = parts;
    this.#session = parts.session;
    this.#life = parts.life;
    this.#stages = parts.life.stages;
    this.#follow(parts.life);
    this.#guest = createGuest(this.#agent, () => this.id);
    this.#session.watch(this.id, this);
  }

  get id(): string {
    return this.#life.id;
  }

  get files(): SandboxFiles {
    return this.#guest.files;
  }

  get stages(): Stages {
    return this.#stages;
  }

  readonly exec: Guest["exec"] = ((command: Command, options?: ExecOptions) =>
    this.#guest.exec(command, options)) as Guest["exec"];

  process(name: string): GuestProcess {
    return this.#guest.process(name);
  }

  processes(options?: CallOptions): Promise<readonly ProcessRow[]> {
    return this.#guest.processes(options);
  }

  openPty(argv: readonly string[], options: PtyOpenOptions): Promise<Pty> {
    return this.#guest.openPty(argv, options);
  }

  pty(name: string): Pty {
    return this.#guest.pty(name);
  }

  ping(options?: CallOptions): Promise<void> {
    return this.#guest.ping(options);
  }

  async limit(limits: Limits, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.limits, limits, "limits");
    this.#hasOwnLimits = true;
    checkInput(inputs.callOptions, options, "options");
    this.#expectUsable();
    await this.#session.request({
      method: "sandbox.limit",
      params: { sandbox: this.id, limits },
      schema: results.empty,
      spec: options,
    });
  }

  async park(options: CallOptions & { readonly name?: string } = {}): Promise<Checkpoint> {
    checkInput(inputs.parkOptions, options, "options");
    this.#expectUsable();
    const { name, ...spec } = options;
    this.#state = moveSandbox(this.#state, "parking");
    try {
      const { result, stages } = await this.#session.request({
        method: "sandbox.park",
        params: { sandbox: this.id, name },
        schema: results.park,
        spec,
        undo: (late) => this.#session.dropQuietly(late.checkpoint),
      });
      if (this.#state !== "parking") {
        // Closed while the answer was on its way.
        this.#session.dropQuietly(result.checkpoint);
        throw this.#unusable();
      }
      this.#gone("parked");
      this.#life.onGone?.();
      const { checkpoint: id, dirtyPages, dirtyBlocks } = result;
      return this.#parts.toCheckpoint({ id, dirtyPages, dirtyBlocks, stages });
    } catch (error) {
      this.#parkFailed(error);
      throw await rootOf(error, this.#life);
    }
  }

  async checkpoint(options: CallOptions & { readonly name?: string } = {}): Promise<Checkpoint> {
    checkInput(inputs.parkOptions, options, "options");
    this.#expectUsable();
    const { name, ...spec } = options;
    const life = this.#life;
    const request = this.#session.request({
      method: "sandbox.checkpoint",
      params: { sandbox: this.id, name },
      schema: results.park,
      spec,
      undo: (late) => this.#session.dropQuietly(late.checkpoint),
    });
    const { result, stages } = await request.catch(async (error: unknown) => {
      if (life === this.#life) this.#noteFailure(error);
      throw await rootOf(error, life);
    });
    const { checkpoint: id, dirtyPages, dirtyBlocks } = result;
    return this.#parts.toCheckpoint({ id, dirtyPages, dirtyBlocks, stages });
  }

  async rewind(options: RewindOptions = {}): Promise<RewindResult> {
    checkInput(inputs.rewindOptions, options, "options");
    const { to, prefer = "measured", ...spec } = options;
    const checkpoint = to?.id ?? this.#life.origin;
    if (checkpoint === undefined) {
      throw new CoppiceError(`Sandbox ${this.id} was not forked through this connection`, {
        code: "INVALID_ARGUMENT",
        faultDomain: "user",
        remedy: "Say which checkpoint to rewind to: rewind({ to }).",
      });
    }
    if (this.#fallback !== undefined) {
      throw this.#beingRewound();
    }
    if (!mayMove(this.#state, "rewinding")) {
      throw this.#unusable();
    }
    if (spec.signal?.aborted === true) {
      throw abortError(`Rewind of sandbox ${this.id}`, spec.signal);
    }
    this.#fallback = this.#state as "live" | "poisoned" | "ended";
    this.#state = moveSandbox(this.#state, "rewinding");
    try {
      const isUsable = this.#fallback === "live" && !this.#hasOwnLimits;
      const request = { checkpoint, life: this.#life, isUsable, prefer, options: spec };
      const { life, ...result } = await this.#parts.rewind(request);
      this.#relive(life);
      return result;
    } catch (failure) {
      const error = failure instanceof LifeLost ? failure.cause : failure;
      if (failure instanceof LifeLost) {
        this.#fallback = "poisoned";
        this.#reason = failure.cause;
      }
      if (this.#state === "rewinding") {
        this.#state = moveSandbox(this.#state, this.#fallback);
      }
      throw error;
    } finally {
      this.#fallback = undefined;
    }
  }

  #relive(life: Life): void {
    const old = this.#life;
    const isAnother = old.id !== life.id;
    if (this.#state === "closed") {
      if (isAnother) {
        this.#session.closeQuietly(life.id);
        life.onGone?.();
      }
      throw this.#unusable();
    }
    if (isAnother) {
      this.#session.unwatch(old.id);
      this.#session.closeQuietly(old.id);
      old.onGone?.();
    }
    this.#life = life;
    this.#hasOwnLimits = false;
    this.#stages = life.stages;
    this.#reason = undefined;
    this.#lastWords = undefined;
    this.#state = moveSandbox(this.#state, "live");
    this.#session.watch(life.id, this);
    this.#follow(life);
  }

  #follow(life: Life): void {
    life.begun?.then(
      (stages) => {
        if (life === this.#life) this.#stages = stages;
      },
      (error: CoppiceError) => {
        if (life === this.#life) this.guestEnded(error, "");
      },
    );
  }

  async console(options: CallOptions = {}): Promise<string> {
    checkInput(inputs.callOptions, options, "options");
    if (this.#state === "parked" || this.#state === "closed") {
      throw this.#unusable();
    }
    try {
      const { result } = await this.#session.request({
        method: "sandbox.console",
        params: { sandbox: this.id },
        schema: results.console,
        spec: options,
      });
      return new TextDecoder().decode(result.data);
    } catch (error) {
      // Of a guest that has ended the host keeps no console; its end came with the news.
      const isLost = error instanceof CoppiceError && error.code === "SANDBOX_LOST";
      if (isLost && this.#lastWords !== undefined) return this.#lastWords;
      throw error;
    }
  }

  close(): Promise<void> {
    if (this.#state === "parked" || (this.#state === "closed" && this.#closing === undefined)) {
      return Promise.resolve();
    }
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  guestEnded(error: CoppiceError, lastWords: string): void {
    this.#lastWords = lastWords;
    if (this.#fallback !== undefined) {
      this.#fallback = "ended";
      this.#reason = error;
    } else if (mayMove(this.#state, "ended")) {
      this.#state = moveSandbox(this.#state, "ended");
      this.#reason = error;
    }
  }

  readonly #agent: AgentCall = async (call) => {
    this.#expectUsable();
    const life = this.#life;
    try {
      return await this.#session.request({
        method: "sandbox.call",
        params: { sandbox: this.id, op: call.op, args: call.args },
        schema: call.schema,
        spec: call.spec ?? {},
      });
    } catch (error) {
      if (life === this.#life) this.#noteFailure(error);
      throw await rootOf(error, life);
    }
  };

  async #close(): Promise<void> {
    this.#gone("closed");
    try {
      if (this.#session.connection.ended !== undefined) {
        return;
      }
      await this.#session.request({ method: "sandbox.close", params: { sandbox: this.id }, schema: results.empty });
    } catch (error) {
      // The session ended meanwhile, and the sandbox with it.
      if (this.#session.connection.ended === undefined) {
        throw error;
      }
    } finally {
      this.#life.onGone?.();
    }
  }

  #gone(state: "parked" | "closed"): void {
    this.#state = moveSandbox(this.#state, state);
    this.#session.unwatch(this.id);
  }

  /** A refusal leaves the sandbox as it was; where nobody knows how far the daemon came, it is closed. */
  #parkFailed(error: unknown): void {
    this.#noteFailure(error);
    if (this.#state !== "parking") {
      return;
    }
    const code = error instanceof CoppiceError ? error.code : undefined;
    if (code === "ABORTED" || code === "DEADLINE_EXCEEDED" || this.#session.connection.ended !== undefined) {
      this.#gone("closed");
      this.#session.closeQuietly(this.id);
      this.#life.onGone?.();
    } else {
      this.#state = moveSandbox(this.#state, "live");
    }
  }

  #noteFailure(error: unknown): void {
    if (!(error instanceof CoppiceError) || !error.poisons) {
      return;
    }
    if (this.#fallback !== undefined) {
      this.#fallback = "poisoned";
      this.#reason = error;
    } else if (mayMove(this.#state, "poisoned")) {
      this.#state = moveSandbox(this.#state, "poisoned");
      this.#reason = error;
    }
  }

  #expectUsable(): void {
    if (this.#state !== "live") {
      throw this.#unusable();
    }
  }

  #beingRewound(): CoppiceError {
    return new CoppiceError(`Sandbox ${this.id} is being rewound`, {
      code: "SANDBOX_BUSY",
      faultDomain: "user",
      retryable: true,
      remedy: "Wait for rewind().",
    });
  }

  #unusable(): CoppiceError {
    if (this.#state === "ended" && this.#reason !== undefined) {
      return this.#reason;
    }
    if (this.#state === "poisoned") {
      return new CoppiceError(`Sandbox ${this.id} may be damaged by an earlier failure`, {
        code: "SANDBOX_POISONED",
        faultDomain: "host",
        poisons: true,
        remedy: "Rewind it, or close it and fork its checkpoint again.",
        cause: this.#reason,
      });
    }
    if (this.#state === "rewinding") {
      return this.#beingRewound();
    }
    const how = this.#state === "closed" ? "is closed" : "has become a checkpoint";
    return new CoppiceError(`Sandbox ${this.id} ${how}`, {
      code: "SANDBOX_CLOSED",
      faultDomain: "user",
      remedy: "Use the checkpoint that park() returned, or fork another sandbox.",
    });
  }
}

/** What failed: not the call, where the life that it was for did not begin. */
async function rootOf(error: unknown, life: Life): Promise<unknown> {
  if (error instanceof CoppiceError && error.code === "SANDBOX_WRONG_STATE") {
    await life.begun;
  }
  return error;
}
