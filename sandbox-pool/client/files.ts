/** Files of a guest. */

import type { CallOptions, SandboxFiles } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { results } from "./messages.js";
import type { AgentCall } from "./sandbox.js";
import { checkInput, inputs } from "./validation.js";

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

  async list(
    path: string,
    options: CallOptions = {},
  ): Promise<readonly { readonly name: string; readonly kind: string }[]> {
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

/** Bytes of what a user gives; text as UTF-8. */
export function toBytes(data: string | Uint8Array): Uint8Array {
  return typeof data === "string" ? Buffer.from(data, "utf8") : data;
}
