/** Files of a guest. */

import type { CallOptions, FileKind, FileSource, FileStat, SandboxFiles } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import type { AgentCall } from "./agent-call.js";
import { archivePieces, extractPieces, readPieces, writePieces } from "./file-streams.js";
import { results } from "./messages.js";
import { toBytes } from "./to-bytes.js";
import { checkInput, inputs } from "./validation.js";

const NANOSECONDS_PER_MS = 1_000_000n;

export function createFiles(agent: AgentCall): SandboxFiles {
  return Object.freeze(new AgentFiles(agent));
}

class AgentFiles implements SandboxFiles {
  readonly #agent: AgentCall;

  constructor(agent: AgentCall) {
    this.#agent = agent;
  }

  async read(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    const answer = await this.#agent({
      op: "file.read",
      args: { path },
      schema: results.fileRead,
      spec: { ...options, maxChunkBytes: DEFAULTS.files.readLimitBytes },
    });
    return Buffer.concat(answer.chunks.map((chunk) => chunk.data));
  }

  async write(
    path: string,
    data: string | Uint8Array,
    options: CallOptions & { readonly mode?: number } = {},
  ): Promise<void> {
    checkInput(inputs.fileWriteOptions, options, "options");
    const { mode, ...spec } = options;
    await this.#put(path, data, { mode }, spec);
  }

  async append(path: string, data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.callOptions, options, "options");
    await this.#put(path, data, { append: true }, options);
  }

  readStream(path: string, options: CallOptions = {}): AsyncIterable<Uint8Array> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    return readPieces(this.#agent, path, options);
  }

  async writeStream(
    path: string,
    source: FileSource,
    options: CallOptions & { readonly mode?: number } = {},
  ): Promise<void> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.fileStream, source, "source");
    checkInput(inputs.fileWriteOptions, options, "options");
    await writePieces(this.#agent, path, source, options);
  }

  async stat(path: string, options: CallOptions = {}): Promise<FileStat> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    const answer = await this.#agent({ op: "file.stat", args: { path }, schema: results.fileStat, spec: options });
    const { mtimeNs, ...stat } = answer.result;
    return { ...stat, mtimeMs: Number(BigInt(mtimeNs) / NANOSECONDS_PER_MS) };
  }

  async move(from: string, to: string, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.path, from, "from");
    checkInput(inputs.path, to, "to");
    checkInput(inputs.callOptions, options, "options");
    await this.#agent({ op: "file.move", args: { from, to }, schema: results.empty, spec: options });
  }

  async symlink(target: string, path: string, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.linkTarget, target, "target");
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    await this.#agent({ op: "file.symlink", args: { target, path }, schema: results.empty, spec: options });
  }

  async readlink(path: string, options: CallOptions = {}): Promise<string> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    const schema = results.fileReadlink;
    return (await this.#agent({ op: "file.readlink", args: { path }, schema, spec: options })).result.target;
  }

  archive(path: string, options: CallOptions = {}): AsyncIterable<Uint8Array> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    return archivePieces(this.#agent, path, options);
  }

  async extract(path: string, source: Uint8Array | FileSource, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.fileSource, source, "source");
    checkInput(inputs.callOptions, options, "options");
    await extractPieces(this.#agent, path, source, options);
  }

  async list(
    path: string,
    options: CallOptions = {},
  ): Promise<readonly { readonly name: string; readonly kind: FileKind }[]> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    const answer = await this.#agent({ op: "file.list", args: { path }, schema: results.fileList, spec: options });
    return answer.result.entries;
  }

  async mkdir(path: string, options: CallOptions = {}): Promise<void> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.callOptions, options, "options");
    await this.#agent({ op: "file.mkdir", args: { path }, schema: results.empty, spec: options });
  }

  async remove(path: string, options: CallOptions & { readonly recursive?: boolean } = {}): Promise<void> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.fileRemoveOptions, options, "options");
    const { recursive, ...spec } = options;
    await this.#agent({ op: "file.remove", args: { path, recursive }, schema: results.empty, spec });
  }

  async #put(path: string, data: string | Uint8Array, extra: object, spec: CallOptions): Promise<void> {
    checkInput(inputs.path, path, "path");
    checkInput(inputs.fileData, data, "data");
    const args = { path, data: toBytes(data), ...extra };
    await this.#agent({ op: "file.write", args, schema: results.empty, spec });
  }
}
