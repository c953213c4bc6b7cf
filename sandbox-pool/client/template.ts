/** From an image to a template: boot, warm up, freeze; once a host for each key. */

import { createHash } from "node:crypto";
import { setTimeout } from "node:timers/promises";

import type { CallOptions, Checkpoint, Image, Sandbox, Stages, TemplateOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import { results } from "./messages.js";
import type { Session } from "./session.js";
import { checkInput, inputs } from "./validation.js";

/** Counts up when what goes into a template's key changes. */
const KEY_FORMAT = 1;

export interface TemplateParts {
  readonly session: Session;
  /** Of the daemon, and so of the kernel and agent that it boots. */
  readonly hostVersion: string;
  readonly toSandbox: (id: string, stages: Stages) => Sandbox;
  readonly toTemplate: (id: string, dirtyPages: number, ownership: TemplateOwnership) => Checkpoint;
}

/** `session`: release drops it. `host`: other clients use it too, release only forgets it here. */
export type TemplateOwnership = "session" | "host";

interface Size {
  readonly memoryMiB: number;
  readonly vcpus: number;
}

/**
 * Throws `TEMPLATE_WARMUP_FAILED` with the cause where `warmUp` throws; the sandbox is then closed. Two clients that make
 * the same template at once both get the one that was shared first.
 */
export async function createTemplate(
  parts: TemplateParts,
  image: Image,
  options: TemplateOptions = {},
): Promise<Checkpoint> {
  checkInput(inputs.image, image, "image");
  checkInput(inputs.templateOptions, options, "options");
  const { memoryMiB = DEFAULTS.template.memoryMiB, vcpus = DEFAULTS.template.vcpus, key } = options;
  if (key === undefined) {
    const frozen = await freeze(parts, image, { memoryMiB, vcpus }, options);
    return parts.toTemplate(frozen.id, frozen.dirtyPages, "session");
  }
  const contentKey = templateKey([image.id, memoryMiB, vcpus, key, parts.hostVersion]);
  const spec = callOptions(options);
  const known = await parts.session.request({
    method: "checkpoint.lookup",
    params: { key: contentKey },
    schema: results.lookup,
    spec,
  });
  if (known.result.checkpoint !== null) {
    options.onProgress?.("Using the warm template that this host has");
    return parts.toTemplate(known.result.checkpoint, known.result.dirtyPages ?? 0, "host");
  }
  const frozen = await freeze(parts, image, { memoryMiB, vcpus }, options);
  const shared = await parts.session.request({
    method: "checkpoint.share",
    params: { checkpoint: frozen.id, key: contentKey },
    schema: results.share,
    spec,
  });
  const dirtyPages = shared.result.dirtyPages ?? frozen.dirtyPages;
  return parts.toTemplate(shared.result.checkpoint, dirtyPages, "host");
}

async function freeze(parts: TemplateParts, image: Image, size: Size, options: TemplateOptions): Promise<Checkpoint> {
  options.onProgress?.("Booting the guest");
  const timeoutMs = options.deadlineMs ?? DEFAULTS.template.bootTimeoutMs;
  const booted = await parts.session.request({
    method: "sandbox.boot",
    params: { image: image.id, ...size, timeoutMs },
    schema: results.boot,
    spec: { ...callOptions(options), deadlineMs: timeoutMs + DEFAULTS.connection.guestGraceMs },
    undo: (late) => parts.session.closeQuietly(late.sandbox),
  });
  const sandbox = parts.toSandbox(booted.result.sandbox, booted.stages);
  try {
    await warmUp(sandbox, options);
    options.onProgress?.("Freezing the template");
    await setTimeout(DEFAULTS.template.settleMs);
    return await sandbox.park(callOptions(options));
  } catch (error) {
    // The first error says what went wrong; a second one from closing would only hide it.
    await sandbox.close().catch(() => undefined);
    throw error;
  }
}

async function warmUp(sandbox: Sandbox, options: TemplateOptions): Promise<void> {
  if (options.warmUp === undefined) {
    return;
  }
  options.onProgress?.("Warming up");
  try {
    await options.warmUp(sandbox);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const isOurs = cause instanceof CoppiceError;
    throw new CoppiceError(`Warm-up of the template failed: ${reason}`, {
      code: "TEMPLATE_WARMUP_FAILED",
      faultDomain: isOurs ? cause.faultDomain : "user",
      retryable: isOurs && cause.retryable,
      remedy: "Correct `warmUp`; the cause says what it threw.",
      cause,
    });
  }
}

function callOptions(options: CallOptions): CallOptions {
  return {
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    ...(options.deadlineMs === undefined ? {} : { deadlineMs: options.deadlineMs }),
  };
}

function templateKey(parts: readonly unknown[]): string {
  return `sha256:${createHash("sha256")
    .update(JSON.stringify([KEY_FORMAT, ...parts]))
    .digest("hex")}`;
}
