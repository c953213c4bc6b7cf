/** What the daemon sends, as schemas: nothing of an answer is used before it was looked at. */

import { z } from "zod";

import type { FaultDomain } from "../errors.js";
import { CoppiceError } from "../errors.js";
import { remedyOf } from "../remedies.js";
import { violation } from "./codec.js";

/** Version of the messages between client and daemon. */
export const CLIENT_PROTOCOL = 1;

/** Messages may quote what a guest printed: long text and control characters stay out of errors and logs. */
const MAX_MESSAGE_LENGTH = 4_096;

const FAULT_DOMAINS = ["guest", "host", "store", "queue", "user", "bug"] as const satisfies readonly FaultDomain[];

const count = z.number().int().nonnegative();
const id = z.union([z.string().min(1), count]).transform(String);
const bytes = z.custom<Uint8Array>((value) => value instanceof Uint8Array, "must be binary");

export const failureSchema = z.object({
  code: z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/),
  message: z.string(),
  faultDomain: z.enum(FAULT_DOMAINS).catch("host"),
  retryable: z.boolean(),
  remedy: z.string().nullish(),
  poisons: z.boolean().optional(),
});

const stages = z.array(z.tuple([z.string(), z.number().nonnegative()]));

export const greetingSchema = z.union([
  z.object({
    welcome: z.object({
      protocol: count,
      version: z.string(),
      session: z.string().min(1),
      hostKind: z.enum(["kvm", "carrier"]),
    }),
  }),
  z.object({ refused: failureSchema }),
]);

const daemonFrameSchema = z.union([
  z.object({ id: count, chunk: z.object({ stream: z.string(), data: bytes }) }),
  z.object({ id: count, error: failureSchema }),
  z.object({ id: count, result: z.unknown(), stages: stages.optional() }).refine((frame) => "result" in frame),
  z.object({ event: z.string(), params: z.unknown() }),
]);

const exit = z.object({ exitCode: z.number().int().nullable(), signal: z.string().nullable() });
const runs = z.array(z.tuple([count, count]));
const sandboxId = z.object({ sandbox: id });
const memoryUsage = z.object({ privateBytes: count, totalBytes: count, diskBytes: count });
const owner = z.object({ session: z.string(), client: z.string() });
const fileKind = z.enum(["file", "directory", "symlink", "fifo", "socket", "block", "character"]);

/** Results by method and agent operation. */
export const results = Object.freeze({
  empty: z.unknown(),
  hostInfo: z.object({
    kind: z.enum(["kvm", "carrier"]),
    version: z.string(),
    memoryBytes: count,
    cpus: count,
    limits: z.object({
      memory: z.enum(["cgroup2", "measured"]),
      cpuShare: z.enum(["cgroup2", "nice", "none"]),
      cpuMax: z.enum(["cgroup2", "none"]),
      reason: z.string().optional(),
    }),
  }),
  hostMetrics: z.object({ text: z.string() }),
  hostStats: z.object({
    sandboxes: z.object({ booting: count, ready: count, leased: count, poisoned: count }),
    checkpoints: z.object({ hot: count, shared: count }),
    sessions: count,
    memory: z.object({ totalBytes: count, availableBytes: count }),
    disk: z.object({ totalBytes: count, availableBytes: count }),
    // Daemons of earlier releases, which are asked before they are ended, do not say these.
    cgroups: count.default(0),
    counters: z.object({
      forks: count,
      parks: count,
      checkpoints: count,
      rewinds: count.default(0),
      boots: count,
      closes: count,
      discarded: count,
      memoryLimitKills: count.default(0),
      consoleDroppedBytes: count.default(0),
    }),
  }),
  boot: sandboxId,
  baselineSave: z.object({ fileBytes: count }),
  fork: z.object({
    children: z.array(
      z.discriminatedUnion("ok", [
        z.object({ ok: z.literal(true), sandbox: id, stages: stages.optional() }),
        z.object({ ok: z.literal(false), error: failureSchema }),
      ]),
    ),
  }),
  park: z.object({ checkpoint: id, dirtyPages: count, dirtyBlocks: count }),
  rewind: z.object({ dirtyPages: count }),
  delta: z.object({ parent: id, pages: runs, blocks: runs }),
  console: z.object({ data: bytes }),
  share: z.object({ checkpoint: id, dirtyPages: count.optional(), dirtyBlocks: count.optional() }),
  lookup: z.object({ checkpoint: id.nullable(), dirtyPages: count.optional(), dirtyBlocks: count.optional() }),
  memoryUsage,
  exec: exit.extend({ timedOut: z.boolean(), truncated: z.boolean(), droppedBytes: count }),
  execStarted: z.object({ pid: count }),
  execWrite: z.object({ open: z.boolean() }),
  execKill: z.object({ running: z.boolean() }),
  execList: z.object({ processes: z.array(z.object({ name: z.string(), pid: count, running: z.boolean() })) }),
  ptyAttach: z.object({ exit }),
  ptySend: z.object({
    data: bytes,
    reason: z.enum(["input", "quiet", "pattern", "none", "exit", "timeout", "limit"]),
    exit: exit.nullish(),
  }),
  fileRead: z.object({ size: count, file: z.string() }),
  fileList: z.object({ entries: z.array(z.object({ name: z.string(), kind: fileKind })) }),
  fileStat: z.object({ kind: fileKind, size: count, mode: count, mtimeNs: z.union([z.number().int(), z.bigint()]) }),
  fileReadlink: z.object({ target: z.string() }),
  uploadBegin: z.object({ upload: count }),
  inventory: z.object({
    sandboxes: z.array(
      z.object({
        sandbox: id,
        owner,
        state: z.enum(["booting", "ready", "leased", "poisoned"]),
        checkpoint: id.nullable(),
        ageMs: count,
        memory: memoryUsage.nullable(),
      }),
    ),
    checkpoints: z.array(
      z.object({
        checkpoint: id,
        owner: owner.nullable(),
        name: z.string().nullable(),
        parent: id.nullable(),
        dirtyPages: count,
        children: count,
        ageMs: count,
        memory: memoryUsage.nullable(),
      }),
    ),
  }),
});

export const sandboxEndedSchema = z.object({
  sandbox: id,
  reason: z.string(),
  detail: z.string().catch(""),
  console: z.union([z.string(), bytes.transform((data) => Buffer.from(data).toString())]).catch(""),
});

export const checkpointLostSchema = z.object({ checkpoint: id });

export type Failure = z.infer<typeof failureSchema>;
export type DaemonFrame = z.infer<typeof daemonFrameSchema>;
export type Welcome = Extract<z.infer<typeof greetingSchema>, { welcome: unknown }>["welcome"];

/** `value` as the schema has it. Throws `PROTOCOL_VIOLATION` naming the field. */
export function expectMessage<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) {
    return parsed.data;
  }
  const issue = parsed.error.issues[0];
  throw violation(
    `Answer to ${what} is malformed at \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "unknown"}`,
  );
}

/** A frame of the daemon. Throws `PROTOCOL_VIOLATION`. */
export function expectFrame(value: unknown): DaemonFrame {
  return isPlainResult(value) ? value : expectMessage(daemonFrameSchema, value, "a call");
}

/** What most frames are, which are seen to be right faster than a schema sees it. */
function isPlainResult(value: unknown): value is { id: number; result: unknown } {
  if (typeof value !== "object" || value === null || !("id" in value && "result" in value)) {
    return false;
  }
  return Number.isSafeInteger(value.id) && Number(value.id) >= 0 && Object.keys(value).length === 2;
}

/** The daemon's failure as an error with all its fields. */
export function failureToError(value: Failure): CoppiceError {
  return new CoppiceError(printable(value.message), {
    code: value.code,
    faultDomain: value.faultDomain,
    retryable: value.retryable,
    poisons: value.poisons ?? false,
    remedy: printable(value.remedy ?? remedyOf(value.code)),
  });
}

function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: taking control characters out is the purpose.
  const clean = text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\u{fffd}");
  return clean.length > MAX_MESSAGE_LENGTH ? `${clean.slice(0, MAX_MESSAGE_LENGTH)}…` : clean;
}
