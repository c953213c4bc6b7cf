/**
 * The guest behind the fake daemon: a map of files, commands and terminal programs, all of it plain data, so that a fork is
 * a copy. For tests of searches and of faults only: nothing here says anything about a real guest.
 */

/** Plain data that `structuredClone` copies. */
export type FakeState = unknown;

/** What a program printed, and whether it has ended. */
export interface FakeOutput {
  readonly state: FakeState;
  readonly text: string;
  /** Set when the program ends. */
  readonly exitCode?: number;
}

/** A program on a terminal: pure, so that a fork of its guest goes on where the guest was. */
export interface FakeProgram {
  start(argv: readonly string[]): FakeOutput;
  /** `line` without its line feed. */
  input(state: FakeState, line: string): FakeOutput;
}

export interface FakeCommandCall {
  readonly argv: readonly string[];
  readonly stdin: Buffer;
  readonly guest: FakeGuest;
  readonly signal: AbortSignal;
}

export interface FakeCommandResult {
  readonly stdout?: string | Uint8Array;
  readonly stderr?: string | Uint8Array;
  readonly exitCode?: number;
}

export type FakeCommand = (call: FakeCommandCall) => FakeCommandResult | Promise<FakeCommandResult>;

export interface FakeIdentity {
  readonly hostname: string;
  readonly bootId: string;
  readonly random: string;
}

interface FakePty {
  readonly program: string;
  state: FakeState;
  unread: string;
  /** What was written without a line feed yet. */
  partial: string;
  exitCode: number | null;
}

/** All that a fork copies. */
export interface FakeMemory {
  readonly files: Record<string, Buffer>;
  readonly ptys: Record<string, FakePty>;
}

export interface FakeSoftware {
  readonly programs: Readonly<Record<string, FakeProgram>>;
  readonly commands: Readonly<Record<string, FakeCommand>>;
}

export interface FakeGuest {
  readonly memory: FakeMemory;
  readonly identity: FakeIdentity;
}

export type Emit = (stream: string, data: Uint8Array) => void;
type Args = Readonly<Record<string, unknown>>;

/** A failure as an agent reports it. */
export class FakeAgentError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

export function emptyMemory(): FakeMemory {
  return { files: {}, ptys: {} };
}

/** structuredClone turns a Buffer into a Uint8Array, so files are copied by hand. */
export function cloneMemory(memory: FakeMemory): FakeMemory {
  const files = Object.fromEntries(Object.entries(memory.files).map(([path, data]) => [path, Buffer.from(data)]));
  return { files, ptys: structuredClone(memory.ptys) };
}

const CHUNK_BYTES = 64 * 1024;

export const BUILT_IN_COMMANDS: Readonly<Record<string, FakeCommand>> = {
  true: () => ({}),
  false: () => ({ exitCode: 1 }),
  echo: ({ argv }) => ({ stdout: `${argv.slice(1).join(" ")}\n` }),
  cat: ({ argv, stdin, guest }) => {
    const path = argv[1];
    if (path === undefined) {
      return { stdout: stdin };
    }
    const data = guest.memory.files[path];
    return data === undefined ? { stderr: `cat: ${path}: No such file or directory\n`, exitCode: 1 } : { stdout: data };
  },
  hostname: ({ guest }) => ({ stdout: `${guest.identity.hostname}\n` }),
  bootid: ({ guest }) => ({ stdout: `${guest.identity.bootId}\n` }),
  random: ({ guest }) => ({ stdout: `${guest.identity.random}\n` }),
  /** Milliseconds. */
  sleep: async ({ argv, signal }) => {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Number(argv[1]));
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    });
    return signal.aborted ? { exitCode: 137 } : {};
  },
};

/** Answers one call of the agent. Throws `FakeAgentError`. */
export async function callFakeGuest(
  guest: FakeGuest,
  software: FakeSoftware,
  call: { readonly op: string; readonly args: Args; readonly emit: Emit; readonly signal: AbortSignal },
): Promise<unknown> {
  const { op, args, emit } = call;
  if (op === "ping") {
    return { bootId: guest.identity.bootId, realtimeNs: BigInt(Date.now()) * 1_000_000n, monotonicNs: 1n };
  }
  if (op === "exec") {
    return await exec(guest, software, call);
  }
  if (op === "exec.window") {
    return {};
  }
  if (op.startsWith("pty.")) {
    return callPty(guest.memory, software, op, args);
  }
  if (op.startsWith("file.")) {
    return callFile(guest.memory, op, args, emit);
  }
  throw new FakeAgentError("UNKNOWN_OPERATION", `Agent knows no operation ${op}`);
}

async function exec(
  guest: FakeGuest,
  software: FakeSoftware,
  { args, emit, signal }: { readonly args: Args; readonly emit: Emit; readonly signal: AbortSignal },
): Promise<unknown> {
  const argv = args["argv"] as readonly string[];
  const command = software.commands[argv[0] ?? ""] ?? BUILT_IN_COMMANDS[argv[0] ?? ""];
  if (command === undefined) {
    throw new FakeAgentError("EXEC_FAILED", `Program ${argv[0]} does not exist`);
  }
  const started = performance.now();
  const timeout = AbortSignal.timeout(Number(args["timeoutMs"]));
  const stdin = Buffer.from((args["stdin"] as Uint8Array | undefined) ?? []);
  const result = await command({ argv, stdin, guest, signal: AbortSignal.any([signal, timeout]) });
  let left = Number(args["outputLimitBytes"]);
  if (args["name"] !== undefined) emit("started", Buffer.from("2"));
  let droppedBytes = 0;
  for (const stream of ["stdout", "stderr"] as const) {
    const data = Buffer.from(result[stream] ?? "");
    const kept = data.subarray(0, left);
    droppedBytes += data.length - kept.length;
    left -= kept.length;
    for (let offset = 0; offset < kept.length; offset += CHUNK_BYTES) {
      emit(stream, kept.subarray(offset, offset + CHUNK_BYTES));
    }
  }
  return {
    exitCode: timeout.aborted ? null : (result.exitCode ?? 0),
    signal: timeout.aborted ? "SIGKILL" : null,
    timedOut: timeout.aborted,
    truncated: droppedBytes > 0,
    droppedBytes,
    durationUs: Math.round((performance.now() - started) * 1_000),
  };
}

function callPty(memory: FakeMemory, software: FakeSoftware, op: string, args: Args): unknown {
  if (op === "pty.list") {
    const ptys = Object.entries(memory.ptys);
    return { ptys: ptys.map(([name, pty]) => ({ name, pid: 2, alive: pty.exitCode === null })) };
  }
  const name = String(args["name"]);
  if (op === "pty.open") {
    const argv = args["argv"] as readonly string[];
    const program = software.programs[argv[0] ?? ""];
    if (program === undefined) {
      throw new FakeAgentError("EXEC_FAILED", `Program ${argv[0]} does not exist`);
    }
    const first = program.start(argv);
    memory.ptys[name] = {
      program: argv[0] ?? "",
      state: first.state,
      unread: first.text,
      partial: "",
      exitCode: first.exitCode ?? null,
    };
    return { pid: 2 };
  }
  const pty = memory.ptys[name];
  if (pty === undefined) {
    throw new FakeAgentError("PTY_NOT_FOUND", `There is no terminal named ${name}`);
  }
  if (op === "pty.close") {
    delete memory.ptys[name];
  }
  return op === "pty.send" ? sendToPty(pty, software, args) : {};
}

function sendToPty(pty: FakePty, software: FakeSoftware, args: Args): unknown {
  const input = pty.partial + Buffer.from((args["data"] as Uint8Array | undefined) ?? []).toString();
  const lines = input.split("\n");
  pty.partial = lines.pop() ?? "";
  for (const line of lines) {
    const program = software.programs[pty.program];
    if (pty.exitCode !== null || program === undefined) {
      break;
    }
    const output = program.input(pty.state, line);
    pty.state = output.state;
    pty.unread += output.text;
    pty.exitCode = output.exitCode ?? null;
  }
  const data = Buffer.from(pty.unread);
  pty.unread = "";
  const kind = (args["until"] as { kind?: string } | undefined)?.kind ?? "none";
  const exit = pty.exitCode === null ? null : { exitCode: pty.exitCode, signal: null };
  return { data, reason: exit === null ? kind : "exit", exit };
}

function callFile(memory: FakeMemory, op: string, args: Args, emit: Emit): unknown {
  const path = String(args["path"]);
  const { files } = memory;
  const known = files[path];
  switch (op) {
    case "file.write": {
      const data = Buffer.from(args["data"] as Uint8Array);
      files[path] = args["append"] === true && known !== undefined ? Buffer.concat([known, data]) : data;
      return {};
    }
    case "file.list": {
      const names = new Set<string>();
      for (const file of Object.keys(files)) {
        if (file.startsWith(`${path}/`)) {
          names.add(file.slice(path.length + 1).split("/")[0] ?? "");
        }
      }
      return { entries: [...names].map((name) => ({ name, kind: "file" })) };
    }
    case "file.mkdir":
      return {};
    default:
      break;
  }
  if (known === undefined) {
    throw new FakeAgentError("FILE_NOT_FOUND", `There is no file ${path}`);
  }
  if (op === "file.remove") {
    delete files[path];
    return {};
  }
  if (op === "file.stat") {
    return { kind: "file", size: known.length, mode: 0o644, mtimeNs: 0 };
  }
  const start = Number(args["offset"] ?? 0);
  const wanted = known.subarray(start, start + Number(args["limit"] ?? known.length));
  for (let offset = 0; offset < wanted.length; offset += CHUNK_BYTES) {
    emit("data", wanted.subarray(offset, offset + CHUNK_BYTES));
  }
  return { size: wanted.length, file: "0:1" };
}
