/** From an image to a template: boot, warm up, freeze; once a host for each key. */

import { createHash } from "node:crypto";
import { setTimeout } from "node:timers/promises";

import type { CallOptions, Checkpoint, Image, Sandbox, Stages, TemplateLimits, TemplateOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";
import type { CheckpointFacts } from "./checkpoint.js";
import { results } from "./messages.js";
import type { Session } from "./session.js";
import { checkInput, inputs } from "./validation.js";

/** Counts up when what goes into a template's key changes. */
const KEY_FORMAT = 3;

export interface TemplateParts {
  readonly session: Session;
  /** Of the daemon, and so of the kernel and agent that it boots. */
  readonly hostVersion: string;
  readonly toSandbox: (id: string, stages: Stages) => Sandbox;
  readonly makeDisk: (sizeMiB: number, options: Pick<CallOptions, "signal">) => Promise<Uint8Array>;
  readonly toTemplate: (facts: CheckpointFacts, ownership: TemplateOwnership) => Checkpoint;
}

/** `session`: release drops it. `host`: other clients use it too, release only forgets it here. */
export type TemplateOwnership = "session" | "host";

interface Size {
  readonly memoryMiB: number;
  readonly vcpus: number;
  readonly diskMiB: number;
  readonly limits: TemplateLimits;
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
  const {
    memoryMiB = DEFAULTS.template.memoryMiB,
    vcpus = DEFAULTS.template.vcpus,
    diskMiB = DEFAULTS.template.diskMiB,
    limits = {},
    key,
  } = options;
  const size = { memoryMiB, vcpus, diskMiB, limits };
  if (key === undefined) {
    return parts.toTemplate(await freeze(parts, image, size, options), "session");
  }
  const contentKey = templateKey([image.id, memoryMiB, vcpus, diskMiB, inOrder(limits), key, parts.hostVersion]);
  const spec = callOptions(options);
  const known = await parts.session.request({
    method: "checkpoint.lookup",
    params: { key: contentKey },
    schema: results.lookup,
    spec,
  });
  if (known.result.checkpoint !== null) {
    options.onProgress?.("Using the warm template that this host has");
    return parts.toTemplate(factsOf(known.result.checkpoint, known.result), "host");
  }
  const frozen = await freeze(parts, image, size, options);
  const shared = await parts.session.request({
    method: "checkpoint.share",
    params: { checkpoint: frozen.id, key: contentKey },
    schema: results.share,
    spec,
  });
  return parts.toTemplate(factsOf(shared.result.checkpoint, shared.result, frozen), "host");
}

interface Delta {
  readonly dirtyPages?: number | undefined;
  readonly dirtyBlocks?: number | undefined;
}

/** What the host says of a checkpoint; where it says nothing, what is known of it. */
function factsOf(id: string, delta: Delta, known: Delta = {}): CheckpointFacts {
  return {
    id,
    dirtyPages: delta.dirtyPages ?? known.dirtyPages ?? 0,
    dirtyBlocks: delta.dirtyBlocks ?? known.dirtyBlocks ?? 0,
  };
}

async function freeze(parts: TemplateParts, image: Image, size: Size, options: TemplateOptions): Promise<Checkpoint> {
  options.onProgress?.("Booting the guest");
  const timeoutMs = options.deadlineMs ?? DEFAULTS.template.bootTimeoutMs;
  const { diskMiB, ...machine } = size;
  const disk = diskMiB === 0 ? undefined : await parts.makeDisk(diskMiB, callOptions(options));
  const booted = await parts.session.request({
    method: "sandbox.boot",
    params: { image: image.id, ...machine, ...(disk === undefined ? {} : { disk }), timeoutMs },
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

/** So that equal limits have equal keys, however they were written. */
function inOrder(limits: TemplateLimits): readonly unknown[] {
  return Object.entries(limits)
    .filter(([, value]) => value !== undefined)
    .sort(([left], [right]) => (left < right ? -1 : 1));
}

function templateKey(parts: readonly unknown[]): string {
  return `sha256:${createHash("sha256")
    .update(JSON.stringify([KEY_FORMAT, ...parts]))
    .digest("hex")}`;
}
