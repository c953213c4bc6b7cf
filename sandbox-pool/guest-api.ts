/** What can be done in a guest: programs, terminals, files. */

export interface CallOptions {
  /** Ends the call, here and on the host, with `ABORTED`. */
  readonly signal?: AbortSignal;
  /** Milliseconds until the call fails with `DEADLINE_EXCEEDED`. Default: see `DEFAULTS` in `sandbox-pool/defaults.ts`. */
  readonly deadlineMs?: number;
}

/** argv, or a text that the guest's `/bin/sh` runs. */
export type Command = string | readonly string[];

export interface ProgramOptions extends CallOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /**
   * A name of the guest's `/etc/passwd` or a number, each with `:group` where it is not to be the user's own. The program gets
   * its groups, HOME, USER and LOGNAME. Default: root.
   */
  readonly user?: string;
}

/** Receives one stream piece by piece, byte for byte. While a promise that it returned is pending, the program waits. */
export type OutputCallback = (piece: Uint8Array) => void | Promise<void>;

export interface OutputOptions {
  /** The result's `stdout` is empty then. What it throws ends the program, and the call with it. */
  readonly onStdout?: OutputCallback;
  readonly onStderr?: OutputCallback;
}

export interface ExecOptions extends ProgramOptions, OutputOptions {
  /**
   * A stream is read as fast as the program reads; its first piece before the program starts. A Node stream is destroyed when the
   * call has ended. Default: none, stdin is at its end.
   */
  readonly stdin?: string | Uint8Array | AsyncIterable<string | Uint8Array>;
  /** Guest-side limit: the process group is killed, and what was printed is still returned. Default 60,000. */
  readonly timeoutMs?: number;
  /**
   * Bytes taken of both streams together; the rest is dropped, `truncated` set and `droppedBytes` counted. Default 16 MiB; no
   * limit with `onStdout` or `onStderr`, where a stream without callback still has that of 16 MiB.
   */
  readonly outputLimitBytes?: number;
  /** Name by which `process(name)` can signal it while it runs. */
  readonly name?: string;
  readonly background?: false;
}

export interface BackgroundOptions extends ProgramOptions {
  readonly background: true;
  /** Name to find it by, also after a fork. Default: one that nothing else has. */
  readonly name?: string;
  /** More can be written later. Default: none. */
  readonly stdin?: string | Uint8Array;
  /** Keeps stdin open for `write`. Default false. */
  readonly stdinOpen?: boolean;
  /** Guest-side limit, also in forks: the process group is killed. Default: none. */
  readonly timeoutMs?: number;
  /** Bytes of output kept in the guest for `wait`; the rest is dropped and counted. Default 1 MiB, at most 16 MiB. */
  readonly outputLimitBytes?: number;
}

export interface ExecResult {
  /** Text of `stdoutBytes`, invalid UTF-8 replaced. */
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** null where a signal ended the program. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
  /** Whether output was dropped. */
  readonly truncated: boolean;
  /** Bytes of output that were dropped. */
  readonly droppedBytes: number;
}

/** A program in the background. It runs on when the handle is forgotten, and in every fork. */
export interface GuestProcess {
  readonly name: string;
  /** null on a handle that was found by its name. */
  readonly pid: number | null;
  /** To its whole process group; default SIGTERM. False where it had ended already. */
  kill(signal?: string, options?: CallOptions): Promise<boolean>;
  /** To its stdin, which `end` closes; resolves when the program's pipe has taken it. False where nobody reads any more. */
  write(data: string | Uint8Array, options?: CallOptions & { readonly end?: boolean }): Promise<boolean>;
  /**
   * Its end, with what it printed since it was started, as far as nobody has waited before. Giving up (`signal`, `deadlineMs`;
   * default: a day) does not end it. One at a time.
   */
  wait(options?: CallOptions & OutputOptions): Promise<ExecResult>;
}

export interface ProcessRow {
  readonly name: string;
  readonly pid: number;
  readonly running: boolean;
}

export interface PtyReadOptions extends CallOptions {
  /** Guest-side limit. Default 10,000. */
  readonly timeoutMs?: number;
  /** Default 1 MiB. */
  readonly maxBytes?: number;
}

export interface PtyExit {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

export interface PtyOutput {
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly reason: "input" | "quiet" | "pattern" | "none" | "exit" | "timeout" | "limit";
  /** Set when the program on the terminal has ended. */
  readonly exit: PtyExit | null;
}

/** Text on its way to a terminal; the condition that is chosen sends it and reads the answer, in one round trip. */
export interface PtyExchange {
  /**
   * Until the program has read everything and sleeps in a read of its terminal. Exact where `untilQuiet` guesses: the
   * same program gives the same text on a fast and on a slow machine.
   */
  untilInput(options?: PtyReadOptions): Promise<PtyOutput>;
  /** Until nothing was printed for `quietMs` (default 100). */
  untilQuiet(options?: PtyReadOptions & { readonly quietMs?: number }): Promise<PtyOutput>;
  /** Until a regular expression matches what was printed since the send. */
  until(pattern: RegExp | string, options?: PtyReadOptions): Promise<PtyOutput>;
}

export interface Pty {
  readonly name: string;
  send(data: string | Uint8Array): PtyExchange;
  /** As `send("")`. */
  read(): PtyExchange;
  /**
   * Gives all that the terminal prints, from what nobody has read on, until its program ends. `send` and `read` are refused
   * meanwhile (`PTY_BUSY`); `write` is what types. For people: programs are better served by `send`. Default deadline: a day.
   */
  attach(options: CallOptions & { readonly onOutput: (piece: Uint8Array) => void }): Promise<PtyExit>;
  /** Types something and reads nothing. */
  write(data: string | Uint8Array, options?: CallOptions): Promise<void>;
  resize(columns: number, rows: number, options?: CallOptions): Promise<void>;
  signal(name: string, options?: CallOptions): Promise<void>;
  close(options?: CallOptions): Promise<void>;
}

export interface PtyOpenOptions extends ProgramOptions {
  /** Name to find it by, also after a fork. */
  readonly name: string;
  readonly columns?: number;
  readonly rows?: number;
}

export type FileKind = "file" | "directory" | "symlink" | "fifo" | "socket" | "block" | "character";

export interface FileStat {
  /** Of a link itself, not of what it names. */
  readonly kind: FileKind;
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  readonly mtimeMs: number;
}

/** Contents on their way into a guest, as they come. */
export type FileSource = AsyncIterable<string | Uint8Array>;

export interface SandboxFiles {
  /** The whole file, at most 256 MiB; `readStream` has no limit. */
  read(path: string, options?: CallOptions): Promise<Uint8Array>;
  /** As a whole or not at all. */
  write(path: string, data: string | Uint8Array, options?: CallOptions & { readonly mode?: number }): Promise<void>;
  append(path: string, data: string | Uint8Array, options?: CallOptions): Promise<void>;
  /**
   * A file of any size, read as it is consumed. Where another file takes its place meanwhile it ends with `FILE_CHANGED`. The
   * deadline counts for each piece.
   */
  readStream(path: string, options?: CallOptions): AsyncIterable<Uint8Array>;
  /** A file of any size, there as a whole when this resolves, and not at all where it rejects. The deadline counts for each piece. */
  writeStream(path: string, source: FileSource, options?: CallOptions & { readonly mode?: number }): Promise<void>;
  list(path: string, options?: CallOptions): Promise<readonly { readonly name: string; readonly kind: FileKind }[]>;
  stat(path: string, options?: CallOptions): Promise<FileStat>;
  mkdir(path: string, options?: CallOptions): Promise<void>;
  remove(path: string, options?: CallOptions & { readonly recursive?: boolean }): Promise<void>;
  /** On one file system; what has the new name already is replaced. */
  move(from: string, to: string, options?: CallOptions): Promise<void>;
  /** `target` is kept as it is, and need not exist. */
  symlink(target: string, path: string, options?: CallOptions): Promise<void>;
  readlink(path: string, options?: CallOptions): Promise<string>;
  /**
   * A tar archive of a directory's entries, or of one file, made by the guest's own `tar` while it is consumed. What comes out
   * of a guest is hostile: unpack it where it can do no harm.
   */
  archive(path: string, options?: CallOptions): AsyncIterable<Uint8Array>;
  /** Unpacks a tar archive into a directory, which is made where it is missing, by the guest's own `tar`. */
  extract(path: string, source: Uint8Array | FileSource, options?: CallOptions): Promise<void>;
}

/** The inside of one running microVM. */
export interface Guest {
  /** Of the sandbox's present life: a rewind gives it another. */
  readonly id: string;
  readonly files: SandboxFiles;
  /** Starts a program and leaves it running. */
  exec(command: Command, options: BackgroundOptions): Promise<GuestProcess>;
  /** Runs a program to its end. A program that exits with another code than 0 is no error. */
  exec(command: Command, options?: ExecOptions): Promise<ExecResult>;
  /** A background process that was started earlier, in this sandbox or in an ancestor. */
  process(name: string): GuestProcess;
  /** The named processes: those in the background, whose end is remembered, and those that somebody runs now. */
  processes(options?: CallOptions): Promise<readonly ProcessRow[]>;
  openPty(argv: readonly string[], options: PtyOpenOptions): Promise<Pty>;
  /** A terminal that was opened earlier, in this sandbox or in an ancestor. */
  pty(name: string): Pty;
  /** One round trip to the agent. */
  ping(options?: CallOptions): Promise<void>;
}
