/** Files and archives of a guest that are too large to be held in memory. */

import { posix } from "node:path";

import type { CallOptions, FileSource } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import type { AgentCall } from "./agent-call.js";
import { deadlineExceeded } from "./connection.js";
import { runProgram } from "./exec.js";
import { results } from "./messages.js";
import { readAhead } from "./read-ahead.js";
import { toBytes } from "./to-bytes.js";

/** Reads a file in pieces, each asked for when the one before it was taken. */
export async function* readPieces(agent: AgentCall, path: string, spec: CallOptions): AsyncGenerator<Uint8Array> {
  const limit = DEFAULTS.files.pieceBytes;
  let first: string | undefined;
  for (let offset = 0; ; ) {
    const call = { op: "file.read", args: { path, offset, limit }, schema: results.fileRead };
    const { result, chunks } = await agent({ ...call, spec: { ...spec, maxChunkBytes: limit } });
    first ??= result.file;
    if (result.file !== first) throw fileChanged(path);
    for (const chunk of chunks) yield chunk.data;
    if (result.size === 0) return;
    offset += result.size;
  }
}

/** Writes a file in pieces, into a place of its own, and puts it where it belongs when all is there. */
export async function writePieces(
  agent: AgentCall,
  path: string,
  source: FileSource,
  { mode, ...spec }: CallOptions & { readonly mode?: number },
): Promise<void> {
  const pieces = readAhead(source);
  const upload = await beginUpload(agent, path, spec).catch((error: unknown) => {
    pieces.stop();
    throw error;
  });
  try {
    for await (const data of inPieces(pieces)) {
      await agent({ op: "upload.write", args: { upload, data }, schema: results.empty, spec });
    }
    await agent({ op: "upload.commit", args: { upload, mode }, schema: results.empty, spec });
  } catch (error) {
    // The first error says what went wrong. After an abort the guest is told all the same.
    await abortUpload(agent, upload);
    throw error;
  }
}

/** The request stays open as long as the upload: where this client vanishes it is cancelled, and nothing is left in the guest. */
async function beginUpload(agent: AgentCall, path: string, spec: CallOptions): Promise<number> {
  const deadlineMs = spec.deadlineMs ?? DEFAULTS.connection.deadlineMs;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), deadlineMs);
  try {
    return await new Promise<number>((resolve, reject) => {
      const held = agent({
        op: "upload.begin",
        args: { path, held: true },
        schema: results.uploadBegin,
        spec: {
          signal: spec.signal === undefined ? late.signal : AbortSignal.any([spec.signal, late.signal]),
          deadlineMs: DEFAULTS.maxDeadlineMs,
          onChunk: ({ data }) => resolve(Number(Buffer.from(data).toString())),
        },
      });
      // Once it has begun, what ends it is told by the request that it ends.
      held.then(({ result }) => resolve(result.upload), reject);
    });
  } catch (error) {
    throw late.signal.aborted ? deadlineExceeded("upload.begin", deadlineMs) : error;
  } finally {
    clearTimeout(timer);
  }
}

async function abortUpload(agent: AgentCall, upload: number): Promise<void> {
  // What made the upload fail is what its caller hears; where the guest is gone the upload is too.
  await agent({ op: "upload.abort", args: { upload }, schema: results.empty }).catch(() => undefined);
}

/** Small pieces together, large ones apart. */
async function* inPieces(source: FileSource): AsyncGenerator<Uint8Array> {
  const limit = DEFAULTS.files.pieceBytes;
  let waiting: Uint8Array[] = [];
  let size = 0;
  for await (const piece of source) {
    const bytes = toBytes(piece);
    for (let offset = 0; offset < bytes.length; ) {
      const part = bytes.subarray(offset, offset + limit - size);
      waiting.push(part);
      size += part.length;
      offset += part.length;
      if (size === limit) {
        yield Buffer.concat(waiting);
        waiting = [];
        size = 0;
      }
    }
  }
  if (size > 0) yield Buffer.concat(waiting);
}

/** What `tar` prints; it waits while nobody takes it. */
export async function* archivePieces(agent: AgentCall, path: string, options: CallOptions): AsyncGenerator<Uint8Array> {
  const { result } = await agent({ op: "file.stat", args: { path }, schema: results.fileStat, spec: options });
  const isDirectory = result.kind === "directory";
  const [directory, entry] = isDirectory ? [path, "."] : [posix.dirname(path), `./${posix.basename(path)}`];
  const stopped = new AbortController();
  const signals = options.signal === undefined ? [stopped.signal] : [options.signal, stopped.signal];
  const handoff = new Handoff();
  const run = runTar(agent, ["tar", "-c", "-f", "-", "-C", directory, entry], path, {
    ...options,
    signal: AbortSignal.any(signals),
    onStdout: (piece) => handoff.give(piece),
  });
  run.then(
    () => handoff.end(),
    () => handoff.end(),
  );
  try {
    yield* handoff.pieces();
    await run;
  } finally {
    stopped.abort();
    await run.catch(() => undefined);
  }
}

export async function extractPieces(
  agent: AgentCall,
  path: string,
  source: Uint8Array | FileSource,
  options: CallOptions,
): Promise<void> {
  if (source instanceof Uint8Array) {
    await unpack(agent, path, source, options);
    return;
  }
  const pieces = readAhead(source);
  try {
    await unpack(agent, path, pieces, options);
  } finally {
    pieces.stop();
  }
}

async function unpack(
  agent: AgentCall,
  path: string,
  stdin: Uint8Array | FileSource,
  options: CallOptions,
): Promise<void> {
  await agent({ op: "file.mkdir", args: { path }, schema: results.empty, spec: options });
  await runTar(agent, ["tar", "-x", "-p", "-f", "-", "-C", path], path, { ...options, stdin });
}

type TarOptions = CallOptions & {
  readonly stdin?: Uint8Array | FileSource;
  readonly onStdout?: (piece: Uint8Array) => Promise<void>;
};

async function runTar(agent: AgentCall, argv: readonly string[], path: string, options: TarOptions): Promise<void> {
  const timeoutMs = options.deadlineMs ?? DEFAULTS.files.archiveTimeoutMs;
  const { exitCode, stderr } = await runProgram(agent, argv, { ...options, timeoutMs }).catch((error: unknown) => {
    const isMissing = error instanceof CoppiceError && error.code === "EXEC_NOT_FOUND";
    throw isMissing ? noTar(error) : error;
  });
  if (exitCode !== 0) throw archiveFailed(path, stderr);
}

/** Passes pieces from one side to the other; who gives waits until the piece is taken. */
class Handoff {
  #waiting: { readonly piece: Uint8Array; readonly taken: () => void } | undefined;
  #ended = false;
  #wake: () => void = () => undefined;

  give(piece: Uint8Array): Promise<void> {
    return new Promise((taken) => {
      this.#waiting = { piece, taken };
      this.#wake();
    });
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  async *pieces(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const waiting = this.#waiting;
      if (waiting !== undefined) {
        this.#waiting = undefined;
        yield waiting.piece;
        waiting.taken();
      } else if (this.#ended) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}

function fileChanged(path: string): CoppiceError {
  return new CoppiceError(`Another file took the place of '${path}' while it was read`, {
    code: "FILE_CHANGED",
    faultDomain: "guest",
    retryable: true,
    remedy: "Read it again.",
  });
}

function noTar(cause: unknown): CoppiceError {
  return new CoppiceError("The guest has no `tar`", {
    code: "ARCHIVE_TOOL_MISSING",
    faultDomain: "guest",
    remedy: "Add the package `tar` to the image, or move the files one by one.",
    cause,
  });
}

function archiveFailed(path: string, stderr: string): CoppiceError {
  const reason = stderr.trim().split("\n").slice(-3).join("; ");
  return new CoppiceError(`Archive of '${path}' failed: ${reason === "" ? "tar gave no reason" : reason}`, {
    code: "ARCHIVE_FAILED",
    faultDomain: "guest",
    remedy: "Read tar's message; a file that changed while it was read needs another attempt.",
  });
}
