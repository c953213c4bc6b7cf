/** A guest to work in: of a sandbox that runs, or of a fresh one that ends with the command. */

import { CoppiceError, type Guest, type Host, type Template } from "../../sandbox-pool/index.js";
import type { HostKind } from "./arguments.js";
import { chooseImage, isSandboxId } from "./image-argument.js";
import type { ProgramParts } from "./program.js";
import { connectPatiently, requireRunningHost } from "./running-host.js";

/** Templates of the command line, as they are now: booted, and nothing more. */
const TEMPLATE_KEY = "coppice command line 1";

export interface FreshOptions {
  readonly host: HostKind;
  /** MiB. Default: the library's. */
  readonly memory?: number | undefined;
}

/**
 * The image, booted and frozen on a host. It stays there, shared, until the host ends: the next command that wants the
 * image need not boot it.
 */
export async function bootTemplate(
  word: string,
  options: FreshOptions,
  { terminal, signal }: Pick<ProgramParts, "terminal" | "signal">,
): Promise<{ readonly host: Host; readonly template: Template }> {
  const { spec, imageBuilder } = await chooseImage(word);
  const onProgress = (text: string): void => terminal.log(text);
  const host = await connectPatiently(
    { kind: options.host, pool: { maxReady: 0 }, ...(imageBuilder === undefined ? {} : { imageBuilder }) },
    { terminal, signal },
  );
  try {
    const image = await host.images.build(spec, { signal, onProgress });
    const size = options.memory === undefined ? {} : { memoryMiB: options.memory };
    const template = await host.templates.create(image, { key: TEMPLATE_KEY, ...size, signal, onProgress });
    return { host, template };
  } catch (error) {
    await host.close();
    throw error;
  }
}

export interface GuestTarget extends AsyncDisposable {
  readonly guest: Guest;
}

/** Throws `INVALID_ARGUMENT` for options that say nothing about a sandbox that runs. */
export async function openTarget(word: string, options: FreshOptions, parts: ProgramParts): Promise<GuestTarget> {
  if (isSandboxId(word)) {
    if (options.memory !== undefined) throw notApplicable("--memory", word);
    return await openSandbox(word, options.host, parts);
  }
  const { host, template } = await bootTemplate(word, options, parts);
  try {
    const guest = await template.fork({ signal: parts.signal });
    return { guest, [Symbol.asyncDispose]: () => host.close() };
  } catch (error) {
    await host.close();
    throw error;
  }
}

/** Of any session. Throws `SANDBOX_NOT_FOUND` with the nearest that runs. */
export async function openSandbox(id: string, kind: HostKind, parts: ProgramParts): Promise<GuestTarget> {
  const host = await requireRunningHost(kind, parts);
  try {
    const { sandboxes } = await host.inventory({ signal: parts.signal });
    if (!sandboxes.some((sandbox) => sandbox.id === id)) throw notFound(id);
    return { guest: host.guests.get(id), [Symbol.asyncDispose]: () => host.close() };
  } catch (error) {
    await host.close();
    throw error;
  }
}

function notApplicable(option: string, sandbox: string): CoppiceError {
  return new CoppiceError(`${option} is for a fresh microVM, and ${sandbox} runs already`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: `Leave ${option} out, or name an image instead of the sandbox.`,
  });
}

function notFound(id: string): CoppiceError {
  return new CoppiceError(`No sandbox ${id} on the running host`, {
    code: "SANDBOX_NOT_FOUND",
    faultDomain: "user",
    remedy: "`coppice ps` lists those that run.",
  });
}
