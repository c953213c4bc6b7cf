/** The inside of a microVM, through whatever reaches its agent. */

import { randomUUID } from "node:crypto";

import type {
  BackgroundOptions,
  CallOptions,
  Command,
  ExecOptions,
  ExecResult,
  Guest,
  GuestProcess,
  OutputOptions,
  ProcessRow,
  Pty,
  PtyOpenOptions,
  SandboxFiles,
} from "../api.js";
import { DEFAULTS } from "../defaults.js";
import type { AgentCall } from "./agent-call.js";
import { runProgram, toArgv, waitForProgram } from "./exec.js";
import { createFiles } from "./files.js";
import { results } from "./messages.js";
import { createPty } from "./pty.js";
import { toBytes } from "./to-bytes.js";
import { checkInput, inputs } from "./validation.js";

/** `currentId`: of the sandbox's present life. */
export function createGuest(agent: AgentCall, currentId: () => string): Guest {
  return Object.freeze(new AgentGuest(agent, currentId));
}

class AgentGuest implements Guest {
  readonly files: SandboxFiles;
  readonly #agent: AgentCall;
  readonly #currentId: () => string;

  constructor(agent: AgentCall, currentId: () => string) {
    this.#agent = agent;
    this.#currentId = currentId;
    this.files = createFiles(agent);
  }

  get id(): string {
    return this.#currentId();
  }

  exec(command: Command, options: BackgroundOptions): Promise<GuestProcess>;
  exec(command: Command, options?: ExecOptions): Promise<ExecResult>;
  async exec(command: Command, options: ExecOptions | BackgroundOptions = {}): Promise<ExecResult | GuestProcess> {
    return options.background === true
      ? await this.#start(command, options)
      : await runProgram(this.#agent, command, options);
  }

  process(name: string): GuestProcess {
    return createProcess(this.#agent, name, null);
  }

  async processes(options: CallOptions = {}): Promise<readonly ProcessRow[]> {
    checkInput(inputs.callOptions, options, "options");
    const { result } = await this.#agent({ op: "exec.list", args: {}, schema: results.execList, spec: options });
    return result.processes;
  }

  async openPty(argv: readonly string[], options: PtyOpenOptions): Promise<Pty> {
    checkInput(inputs.argv, argv, "argv");
    checkInput(inputs.ptyOpenOptions, options, "options");
    const { signal, deadlineMs, columns = DEFAULTS.pty.columns, rows = DEFAULTS.pty.rows, ...program } = options;
    const args = { ...program, argv, cols: columns, rows };
    await this.#agent({ op: "pty.open", args, schema: results.empty, spec: { signal, deadlineMs } });
    return this.pty(options.name);
  }

  pty(name: string): Pty {
    return createPty(this.#agent, name);
  }

  async ping(options: CallOptions = {}): Promise<void> {
    checkInput(inputs.callOptions, options, "options");
    await this.#agent({ op: "ping", args: {}, schema: results.empty, spec: options });
  }

  async #start(command: Command, options: BackgroundOptions): Promise<GuestProcess> {
    const argv = toArgv(command);
    checkInput(inputs.backgroundOptions, options, "options");
    const { signal, deadlineMs, name = `process-${randomUUID()}`, stdin, ...rest } = options;
    const { result } = await this.#agent({
      op: "exec",
      args: { ...rest, argv, name, ...(stdin === undefined ? {} : { stdin: toBytes(stdin) }) },
      schema: results.execStarted,
      spec: { signal, deadlineMs },
    });
    return createProcess(this.#agent, name, result.pid);
  }
}

function createProcess(agent: AgentCall, name: string, pid: number | null): GuestProcess {
  checkInput(inputs.ptyName, name, "name");
  return Object.freeze(new AgentProcess(agent, name, pid));
}

class AgentProcess implements GuestProcess {
  readonly name: string;
  readonly pid: number | null;
  readonly #agent: AgentCall;

  constructor(agent: AgentCall, name: string, pid: number | null) {
    this.#agent = agent;
    this.name = name;
    this.pid = pid;
  }

  async kill(signal = "SIGTERM", options: CallOptions = {}): Promise<boolean> {
    checkInput(inputs.signalName, signal, "signal");
    checkInput(inputs.callOptions, options, "options");
    const args = { name: this.name, signal };
    const { result } = await this.#agent({ op: "exec.kill", args, schema: results.execKill, spec: options });
    return result.running;
  }

  async write(data: string | Uint8Array, options: CallOptions & { readonly end?: boolean } = {}): Promise<boolean> {
    checkInput(inputs.fileData, data, "data");
    checkInput(inputs.writeOptions, options, "options");
    const { end = false, ...spec } = options;
    const args = { name: this.name, data: toBytes(data), end };
    const { result } = await this.#agent({ op: "exec.write", args, schema: results.execWrite, spec });
    return result.open;
  }

  async wait(options: CallOptions & OutputOptions = {}): Promise<ExecResult> {
    checkInput(inputs.waitOptions, options, "options");
    return await waitForProgram(this.#agent, this.name, options);
  }
}
