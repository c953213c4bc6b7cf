/** Terminals of a guest. */

import type { CallOptions, Pty, PtyExchange, PtyExit, PtyOutput, PtyReadOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import type { AgentCall } from "./agent-call.js";
import { results } from "./messages.js";
import { toRustPattern } from "./pattern.js";
import { toBytes } from "./to-bytes.js";
import { checkInput, inputs, invalidArgument } from "./validation.js";

export function createPty(agent: AgentCall, name: string): Pty {
  checkInput(inputs.ptyName, name, "name");
  return Object.freeze(new AgentPty(agent, name));
}

class AgentPty implements Pty {
  readonly name: string;
  readonly #agent: AgentCall;

  constructor(agent: AgentCall, name: string) {
    this.#agent = agent;
    this.name = name;
  }

  send(data: string | Uint8Array): PtyExchange {
    checkInput(inputs.ptyData, data, "data");
    return new Exchange(this.#agent, this.name, data);
  }

  read(): PtyExchange {
    return this.send("");
  }

  async attach(options: CallOptions & { readonly onOutput: (piece: Uint8Array) => void }): Promise<PtyExit> {
    checkInput(inputs.ptyAttachOptions, options, "options");
    const { onOutput, signal, deadlineMs = DEFAULTS.maxDeadlineMs } = options;
    const { result } = await this.#agent({
      op: "pty.attach",
      args: { name: this.name },
      schema: results.ptyAttach,
      spec: { signal, deadlineMs, onChunk: ({ data }) => onOutput(data) },
    });
    return result.exit;
  }

  async write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.ptyData, data, "data");
    await this.#plain("pty.write", { data: toBytes(data) }, options);
  }

  async resize(columns: number, rows: number, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.terminalSize, { columns, rows }, "size");
    await this.#plain("pty.resize", { cols: columns, rows }, options);
  }

  async signal(signal: string, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.signalName, signal, "signal");
    await this.#plain("pty.signal", { signal }, options);
  }

  async close(options: CallOptions = {}): Promise<void> {
    await this.#plain("pty.close", {}, options);
  }

  async #plain(op: string, args: object, options: CallOptions): Promise<void> {
    checkInput(inputs.callOptions, options, "options");
    await this.#agent({ op, args: { name: this.name, ...args }, schema: results.empty, spec: options });
  }
}

class Exchange implements PtyExchange {
  readonly #agent: AgentCall;
  readonly #name: string;
  readonly #data: string | Uint8Array;
  #sent = false;

  constructor(agent: AgentCall, name: string, data: string | Uint8Array) {
    this.#agent = agent;
    this.#name = name;
    this.#data = data;
  }

  async untilInput(options: PtyReadOptions = {}): Promise<PtyOutput> {
    checkInput(inputs.ptyReadOptions, options, "options");
    return await this.#run({ kind: "input" }, options);
  }

  async untilQuiet(options: PtyReadOptions & { readonly quietMs?: number } = {}): Promise<PtyOutput> {
    checkInput(inputs.ptyQuietOptions, options, "options");
    const { quietMs = DEFAULTS.pty.quietMs, ...rest } = options;
    return await this.#run({ kind: "quiet", quietMs }, rest);
  }

  async until(pattern: RegExp | string, options: PtyReadOptions = {}): Promise<PtyOutput> {
    checkInput(inputs.ptyReadOptions, options, "options");
    return await this.#run({ kind: "pattern", pattern: toRustPattern(pattern) }, options);
  }

  async #run(until: object, options: PtyReadOptions): Promise<PtyOutput> {
    if (this.#sent) {
      throw invalidArgument("exchange", "was sent already; call send() again for another one");
    }
    this.#sent = true;
    const { signal, timeoutMs = DEFAULTS.pty.timeoutMs, maxBytes = DEFAULTS.pty.maxBytes } = options;
    const deadlineMs = options.deadlineMs ?? timeoutMs + DEFAULTS.connection.guestGraceMs;
    const { result } = await this.#agent({
      op: "pty.send",
      args: { name: this.#name, data: toBytes(this.#data), until, timeoutMs, maxBytes },
      schema: results.ptySend,
      spec: { signal, deadlineMs },
    });
    // A copy of its own: the wire's buffer may be much larger, and this is kept in transcripts.
    const bytes = Uint8Array.from(result.data);
    return { text: new TextDecoder().decode(bytes), bytes, reason: result.reason, exit: result.exit ?? null };
  }
}
