/** Checks what users give before anything is sent. Errors name the field and say what to do. */

import { z } from "zod";

import type { WarmPoolOptions } from "../api.js";
import { DEFAULTS } from "../defaults.js";
import { CoppiceError } from "../errors.js";

/** execve refuses longer arguments; the limit is here so that the error names the argument. */
const MAX_ARGUMENT_BYTES = 128 * 1024;
const MAX_ARGUMENTS = 4_096;
/** Linux PATH_MAX. */
const MAX_PATH_BYTES = 4_096;
const MAX_NAME_LENGTH = 256;
const MAX_GUEST_NAME_BYTES = 128;
const MAX_TERMINAL_CELLS = 10_000;
const PERMISSION_BITS = 0o7777;
const MAX_PORT = 65_535;

const noNul = (text: string): boolean => !text.includes("\0");
const shortEnough =
  (limit: number) =>
  (text: string): boolean =>
    Buffer.byteLength(text) < limit;

const argument = z
  .string()
  .refine(noNul, "must not contain NUL characters")
  .refine(shortEnough(MAX_ARGUMENT_BYTES), `must be shorter than ${MAX_ARGUMENT_BYTES} bytes`);

const milliseconds = z.number().int().positive().max(DEFAULTS.maxDeadlineMs);
const signal = z.custom<AbortSignal>((value) => value instanceof AbortSignal, "must be an AbortSignal");
const callback = z.custom((value) => typeof value === "function", "must be a function");
const data = z.union([z.string(), z.custom<Uint8Array>((value) => value instanceof Uint8Array)], {
  error: "must be a string or a Uint8Array",
});
const stream = z.custom<AsyncIterable<string | Uint8Array>>(
  (value) => typeof value === "object" && value !== null && Symbol.asyncIterator in value,
);
const call = z.strictObject({ signal: signal.optional(), deadlineMs: milliseconds.optional() });

const environment = z.record(
  z
    .string()
    .min(1, "must not be empty")
    .refine((name) => noNul(name) && !name.includes("="), "must not contain '=' or NUL characters"),
  argument,
);

const directory = z
  .string()
  .min(1)
  .refine(noNul, "must not contain NUL characters")
  .refine((path) => path.startsWith("/"), "must be an absolute path, starting with '/'")
  .refine(shortEnough(MAX_PATH_BYTES), `must be shorter than ${MAX_PATH_BYTES} bytes`);

const user = z
  .string()
  .regex(/^[^:\0]+(:[^:\0]+)?$/, "must be a user's name or number, with :GROUP where it is not to be the user's own");

const program = call.extend({ env: environment.optional(), cwd: directory.optional(), user: user.optional() });

const ptyRead = call.extend({
  timeoutMs: milliseconds.optional(),
  maxBytes: z.number().int().positive().max(DEFAULTS.files.writeLimitBytes).optional(),
});
const cells = z.number().int().positive().max(MAX_TERMINAL_CELLS);
const name = z.string().min(1).max(MAX_NAME_LENGTH).refine(noNul, "must not contain NUL characters");

/** The agent's limit. */
const ptyName = z
  .string()
  .min(1)
  .refine(noNul, "must not contain NUL characters")
  .refine(shortEnough(MAX_GUEST_NAME_BYTES + 1), `must be at most ${MAX_GUEST_NAME_BYTES} bytes`);

const port = z.number().int().min(1).max(MAX_PORT);

const fingerprint = z
  .string()
  .regex(/^sha256:[0-9A-Fa-f]{64}$/, "must be sha256: and 64 hexadecimal digits, as coppiced prints it");
const tlsTrust = z.strictObject({ fingerprint: fingerprint.optional(), ca: z.string().min(1).optional() });

const hostAddress = z.strictObject({
  kind: z.enum(["kvm", "carrier"]),
  endpoint: z.union(
    [
      z.strictObject({ unix: z.string().min(1) }),
      z.strictObject({ host: z.string().min(1), port, tls: tlsTrust.optional() }),
    ],
    { error: "must be { unix: path } or { host, port, tls? }" },
  ),
  token: z.string().min(1).optional(),
  session: z.string().min(1),
});

const atLeastZero = z.number().nonnegative().optional();
const whole = z.number().int().nonnegative().optional();
const positive = z.number().positive().optional();

const poolOptions = z.strictObject({
  maxReady: whole,
  maxReadyPerCheckpoint: whole,
  maxLive: z.number().int().positive().optional(),
  minAvailableBytes: whole,
  memoryReadingMs: atLeastZero,
  demandHalfLifeMs: positive,
  demandPerChild: positive,
  lowWatermark: z.number().gt(0).max(1).optional(),
  highWatermark: z.number().min(1).optional(),
  maxInFlight: whole,
  refillDelayMs: z.number().min(0).optional(),
  refillBatch: z.number().int().positive().optional(),
  tickMs: positive,
  failureBackoffMs: atLeastZero,
  latencySamples: z.number().int().positive().optional(),
} satisfies Record<keyof WarmPoolOptions, z.ZodType>);

const limits = z.strictObject({
  memoryMiB: z.number().int().min(8).max(DEFAULTS.template.maxMemoryMiB).optional(),
  cpuShare: z.number().int().min(1).max(10_000).optional(),
  cpuMax: z.number().min(0.01).max(DEFAULTS.limits.maxCpus).optional(),
});
const templateLimits = limits.extend({
  processes: z.number().int().min(DEFAULTS.limits.minProcesses).max(DEFAULTS.limits.maxProcesses).optional(),
  consoleBytesPerSecond: z
    .number()
    .int()
    .min(DEFAULTS.limits.minConsoleRate)
    .max(DEFAULTS.limits.maxConsoleRate)
    .optional(),
});

/** By what is checked; `checkInput` takes one of these. */
export const inputs = Object.freeze({
  argv: z.array(argument).min(1, "must hold at least the program").max(MAX_ARGUMENTS),
  callOptions: call,
  command: z
    .string()
    .min(1, "must not be empty")
    .refine(noNul, "must not contain NUL characters")
    .refine(shortEnough(MAX_ARGUMENT_BYTES), `must be shorter than ${MAX_ARGUMENT_BYTES} bytes`),
  execOptions: program.extend({
    stdin: z.union([data, stream], { error: "must be a string, a Uint8Array or an AsyncIterable of them" }).optional(),
    timeoutMs: milliseconds.optional(),
    outputLimitBytes: z.number().int().positive().optional(),
    onStdout: callback.optional(),
    onStderr: callback.optional(),
    name: ptyName.optional(),
    background: z.literal(false).optional(),
  }),
  backgroundOptions: program.extend({
    background: z.literal(true),
    name: ptyName.optional(),
    stdin: data.optional(),
    stdinOpen: z.boolean().optional(),
    timeoutMs: milliseconds.optional(),
    outputLimitBytes: z.number().int().positive().max(DEFAULTS.exec.maxBackgroundBytes).optional(),
  }),
  waitOptions: call.extend({ onStdout: callback.optional(), onStderr: callback.optional() }),
  writeOptions: call.extend({ end: z.boolean().optional() }),
  ptyOpenOptions: program.extend({
    name: ptyName,
    columns: cells.optional(),
    rows: cells.optional(),
  }),
  ptyReadOptions: ptyRead,
  ptyQuietOptions: ptyRead.extend({ quietMs: milliseconds.optional() }),
  ptyData: data,
  ptyName,
  ptyAttachOptions: call.extend({ onOutput: callback }),
  terminalSize: z.object({ columns: cells, rows: cells }),
  signalName: z.string().regex(/^(SIG)?[A-Z][A-Z0-9+-]{1,15}$/, "must be a signal's name, such as SIGINT"),
  path: directory,
  linkTarget: z
    .string()
    .min(1)
    .refine(noNul, "must not contain NUL characters")
    .refine(shortEnough(MAX_PATH_BYTES), `must be shorter than ${MAX_PATH_BYTES} bytes`),
  fileStream: stream.refine(() => true, "must be an AsyncIterable"),
  fileSource: z.union([z.custom<Uint8Array>((value) => value instanceof Uint8Array), stream], {
    error: "must be a Uint8Array or an AsyncIterable",
  }),
  inventoryOptions: call.extend({ memory: z.boolean().optional() }),
  fileData: data.refine(
    (value) => Buffer.byteLength(value) <= DEFAULTS.files.writeLimitBytes,
    `must be at most ${DEFAULTS.files.writeLimitBytes} bytes; write the rest with files.append`,
  ),
  fileWriteOptions: call.extend({ mode: z.number().int().min(0).max(PERMISSION_BITS).optional() }),
  fileRemoveOptions: call.extend({ recursive: z.boolean().optional() }),
  parkOptions: call.extend({ name: name.optional() }),
  forkCount: z.number().int().min(1).max(DEFAULTS.fork.maxCount),
  forkOptions: call.extend({ keepRandomness: z.boolean().optional(), limits: limits.optional() }),
  limits,
  rewindOptions: call.extend({
    keepRandomness: z.boolean().optional(),
    to: z.looseObject({ id: name }).optional(),
    prefer: z.enum(["measured", "in-place", "fork"]).optional(),
  }),
  weight: z.number().nonnegative(),
  image: z.looseObject({ id: z.string().min(1) }),
  imageOptions: call.extend({ onProgress: callback.optional() }),
  templateOptions: call.extend({
    memoryMiB: z.number().int().min(DEFAULTS.template.minMemoryMiB).max(DEFAULTS.template.maxMemoryMiB).optional(),
    vcpus: z.number().int().min(1).max(DEFAULTS.template.maxVcpus).optional(),
    diskMiB: z
      .union([z.literal(0), z.number().int().min(DEFAULTS.template.minDiskMiB).max(DEFAULTS.template.maxDiskMiB)], {
        error: `must be 0, or ${DEFAULTS.template.minDiskMiB} to ${DEFAULTS.template.maxDiskMiB}`,
      })
      .optional(),
    limits: templateLimits.optional(),
    warmUp: callback.optional(),
    key: z.string().min(1).optional(),
    onProgress: callback.optional(),
  }),
  connectOptions: z.strictObject({
    kind: z.string().min(1).optional(),
    token: z.string().min(1).optional(),
    fingerprint: fingerprint.optional(),
    ca: z.string().min(1).optional(),
    allowPlaintext: z.boolean().optional(),
    join: hostAddress.optional(),
    signal: signal.optional(),
    onProgress: callback.optional(),
    pool: poolOptions.optional(),
    imageBuilder: callback.optional(),
  }),
  fingerprint,
  id: z.string().min(1),
  memoryUsageOf: z.union([z.strictObject({ sandbox: z.string() }), z.strictObject({ checkpoint: z.string() })], {
    error: "must be { sandbox: id } or { checkpoint: id }",
  }),
});

/** Throws `INVALID_ARGUMENT` where `value` is not what `what` has to be. An absent options object is fine. */
export function checkInput(schema: z.ZodType, value: unknown, what: string): void {
  const parsed = schema.safeParse(value);
  if (parsed.success) {
    return;
  }
  const issue = parsed.error.issues[0];
  const path = issue === undefined || issue.path.length === 0 ? what : `${what}.${issue.path.join(".")}`;
  throw invalidArgument(path, issue?.message ?? "is not valid");
}

export function invalidArgument(field: string, problem: string): CoppiceError {
  return new CoppiceError(`\`${field}\`: ${problem}`, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: `Correct \`${field}\` and call again.`,
  });
}
