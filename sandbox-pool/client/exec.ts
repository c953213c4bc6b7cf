/** Programs that are run to their end, with their streams. */

import { randomUUID } from "node:crypto";

import type { CallOptions, Command, ExecOptions, ExecResult, OutputOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import type { AgentCall } from "./agent-call.js";
import type { Chunk } from "./connection.js";
import { results } from "./messages.js";
import { OutputSink, type OutputSinkOptions } from "./output-sink.js";
import { type ReadAhead, readAhead } from "./read-ahead.js";
import { toBytes } from "./to-bytes.js";
import { checkInput, inputs } from "./validation.js";

/** What tells a waiting program's caller how it ended. */
interface Ending {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
  readonly truncated: boolean;
  readonly droppedBytes: number;
}

/** argv of a command; a text is run by the guest's shell. */
export function toArgv(command: Command): readonly string[] {
  if (typeof command === "string") {
    checkInput(inputs.command, command, "command");
    return ["/bin/sh", "-c", command];
  }
  checkInput(inputs.argv, command, "argv");
  return command;
}

export async function runProgram(agent: AgentCall, command: Command, options: ExecOptions): Promise<ExecResult> {
  const argv = toArgv(command);
  checkInput(inputs.execOptions, options, "options");
  const { signal, deadlineMs, stdin, onStdout, onStderr, background: _, ...program } = options;
  const timeoutMs = options.timeoutMs ?? DEFAULTS.exec.timeoutMs;
  const isStreamed = onStdout !== undefined || onStderr !== undefined;
  const limit = isStreamed ? DEFAULTS.exec.streamLimitBytes : DEFAULTS.exec.outputLimitBytes;
  const outputLimitBytes = options.outputLimitBytes ?? limit;
  const input = stdin === undefined || isWhole(stdin) ? undefined : stdin;
  const args = {
    ...program,
    argv,
    timeoutMs,
    outputLimitBytes,
    ...(stdin !== undefined && isWhole(stdin) ? { stdin: toBytes(stdin) } : {}),
  };
  const spec = { signal, deadlineMs: deadlineMs ?? timeoutMs + DEFAULTS.connection.guestGraceMs };
  if (!isStreamed && input === undefined && options.name === undefined) {
    const call = { op: "exec", args, schema: results.exec, spec: { ...spec, maxChunkBytes: outputLimitBytes } };
    const { result, chunks } = await agent(call);
    return toResult(result, joinStream(chunks, "stdout"), joinStream(chunks, "stderr"));
  }
  const name = options.name ?? `exec-${randomUUID()}`;
  const collectedBytes = options.outputLimitBytes ?? DEFAULTS.exec.outputLimitBytes;
  return await new StreamedRun(agent, { name, output: { onStdout, onStderr }, limitBytes: collectedBytes }).run({
    op: "exec",
    args: {
      ...args,
      name,
      ...(isStreamed ? { windowBytes: DEFAULTS.exec.windowBytes } : {}),
      ...(input === undefined ? {} : { stdinOpen: true }),
    },
    spec,
    input,
  });
}

/** `exec.wait`. The program itself is not held back: while a callback waits, output goes on into the guest's memory. */
export async function waitForProgram(
  agent: AgentCall,
  name: string,
  options: CallOptions & OutputOptions,
): Promise<ExecResult> {
  const { signal, deadlineMs = DEFAULTS.maxDeadlineMs, onStdout, onStderr } = options;
  const isStreamed = onStdout !== undefined || onStderr !== undefined;
  const limitBytes = DEFAULTS.exec.maxBackgroundBytes;
  return await new StreamedRun(agent, { name, output: { onStdout, onStderr }, limitBytes }).run({
    op: "exec.wait",
    args: { name, ...(isStreamed ? { windowBytes: DEFAULTS.exec.windowBytes } : {}) },
    spec: { signal, deadlineMs },
    input: undefined,
  });
}

interface StreamedCall {
  readonly op: string;
  readonly args: object;
  readonly spec: { readonly signal: AbortSignal | undefined; readonly deadlineMs: number };
  readonly input: AsyncIterable<string | Uint8Array> | undefined;
}

interface StreamedRunOptions extends Pick<OutputSinkOptions, "output" | "limitBytes"> {
  readonly name: string;
}

/** One call whose output is given away as it comes, and whose stdin is read as it is wanted. */
class StreamedRun {
  readonly #agent: AgentCall;
  readonly #name: string;
  readonly #sink: OutputSink;
  readonly #failed = new AbortController();
  /** The call has its answer: nobody reads its input any more. */
  #isOver = false;

  constructor(agent: AgentCall, { name, output, limitBytes }: StreamedRunOptions) {
    this.#agent = agent;
    this.#name = name;
    this.#sink = new OutputSink({
      output,
      limitBytes,
      grant: (bytes) => this.#grant(bytes),
      // What a callback throws is the call's failure, and ends the program.
      onFailure: (error) => this.#failed.abort(error),
    });
  }

  async run({ op, args, spec, input }: StreamedCall): Promise<ExecResult> {
    const signals = spec.signal === undefined ? [this.#failed.signal] : [spec.signal, this.#failed.signal];
    const source = input === undefined ? undefined : readAhead(input);
    let isFeeding = false;
    try {
      const { result } = await this.#agent({
        op,
        args,
        schema: results.exec,
        spec: {
          ...spec,
          signal: AbortSignal.any(signals),
          onChunk: (chunk) => {
            if (chunk.stream !== "started") {
              this.#sink.take(chunk);
            } else if (source !== undefined && !isFeeding) {
              isFeeding = true;
              this.#feed(source);
            }
          },
        },
      });
      await this.#sink.drained(AbortSignal.any(signals));
      this.#rethrow();
      return this.#result(result);
    } catch (error) {
      this.#rethrow();
      throw error;
    } finally {
      this.#isOver = true;
      source?.stop();
      this.#sink.close();
    }
  }

  #rethrow(): void {
    if (this.#failed.signal.aborted) throw this.#failed.signal.reason;
  }

  #result(ending: Ending): ExecResult {
    const { droppedBytes } = this.#sink;
    const all = { ...ending, droppedBytes: ending.droppedBytes + droppedBytes };
    return toResult(all, this.#sink.collected("stdout"), this.#sink.collected("stderr"));
  }

  /** More output may come. Nobody waits for the answer: a program that has ended needs no grant. */
  #grant(bytes: number): void {
    const call = { op: "exec.window", args: { name: this.#name, bytes }, schema: results.empty };
    this.#agent(call).catch(() => undefined);
  }

  #feed(source: ReadAhead<string | Uint8Array>): void {
    const feed = async (): Promise<void> => {
      for (let next = await source.next(); !this.#isOver; next = await source.next()) {
        const isOpen = next.done === true ? await this.#write({ end: true }) : await this.#writeAll(next.value);
        if (next.done === true || !isOpen) return;
      }
    };
    feed().catch((error: unknown) => {
      // The program's own end is no failure of its input.
      const hasEnded = error instanceof CoppiceError && error.code === "PROCESS_NOT_FOUND";
      if (!hasEnded && !this.#isOver) this.#failed.abort(error);
    });
  }

  async #writeAll(piece: string | Uint8Array): Promise<boolean> {
    const bytes = toBytes(piece);
    const { stdinPieceBytes } = DEFAULTS.exec;
    for (let offset = 0; offset < bytes.length; offset += stdinPieceBytes) {
      if (!(await this.#write({ data: bytes.subarray(offset, offset + stdinPieceBytes) }))) return false;
    }
    return true;
  }

  async #write(args: { readonly data?: Uint8Array; readonly end?: boolean }): Promise<boolean> {
    const { result } = await this.#agent({
      op: "exec.write",
      args: { name: this.#name, ...args },
      schema: results.execWrite,
      // A program may take as long as it likes to read: the call of `exec` has the limit.
      spec: { deadlineMs: DEFAULTS.maxDeadlineMs },
    });
    return result.open;
  }
}

function isWhole(stdin: NonNullable<ExecOptions["stdin"]>): stdin is string | Uint8Array {
  return typeof stdin === "string" || stdin instanceof Uint8Array;
}

function toResult(ending: Ending, stdoutBytes: Uint8Array, stderrBytes: Uint8Array): ExecResult {
  const decoder = new TextDecoder();
  return {
    stdout: decoder.decode(stdoutBytes),
    stderr: decoder.decode(stderrBytes),
    stdoutBytes,
    stderrBytes,
    exitCode: ending.exitCode,
    signal: ending.signal,
    timedOut: ending.timedOut,
    truncated: ending.truncated || ending.droppedBytes > 0,
    droppedBytes: ending.droppedBytes,
  };
}

function joinStream(chunks: readonly Chunk[], stream: string): Uint8Array {
  return Buffer.concat(chunks.filter((chunk) => chunk.stream === stream).map((chunk) => chunk.data));
}
