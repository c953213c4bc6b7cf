/**
 * The real game in a local process, behind the part of a sandbox that the environment uses: for tests that need the
 * program but no virtual machine. A fork is a replay from the start, which equal seeds make exact.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import type { adventure } from "./adventure.js";

type Context = Parameters<typeof adventure.step>[0];

const PROGRAM = "/usr/games/adventure";
/** Any C compiler will do; linking Rust needs one anyway. */
const COMPILER = "cc";

/** The read system call, by machine. */
const READ: Readonly<Record<string, string>> = { x64: "0", arm64: "63" };

/** What a guest has from its clock and its terminal: the time as told, and output line by line. */
const SHIM = `
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
time_t time(time_t *out) {
  const char *text = getenv("LOCAL_GAME_TIME");
  time_t now = text == NULL ? 0 : (time_t)atoll(text);
  if (out != NULL) *out = now;
  return now;
}
__attribute__((constructor)) static void by_line(void) { setvbuf(stdout, NULL, _IOLBF, 0); }
`;

/** Why the program cannot run here, or undefined where it can. */
export function missingForLocalGame(): string | undefined {
  if (!existsSync(PROGRAM)) return `${PROGRAM} is missing: apt-get install bsdgames`;
  if (READ[process.arch] === undefined) return `no system call table for ${process.arch}`;
  try {
    execFileSync(COMPILER, ["--version"], { stdio: "ignore" });
  } catch {
    return "cc is missing: apt-get install gcc";
  }
  return undefined;
}

let shim: string | undefined;

function shimPath(): string {
  if (shim !== undefined) return shim;
  const folder = mkdtempSync(join(tmpdir(), "local-game-"));
  writeFileSync(join(folder, "shim.c"), SHIM);
  shim = join(folder, "shim.so");
  execFileSync(COMPILER, ["-shared", "-fPIC", "-o", shim, join(folder, "shim.c")]);
  return shim;
}

/** To be called when no more games are started: a test runner may end its workers without further notice. */
export function removeShim(): void {
  if (shim !== undefined) rmSync(dirname(shim), { recursive: true, force: true });
  shim = undefined;
}

/** One running game. Its output goes to a file, so that reading it needs no waiting. */
class LocalProcess {
  readonly #child: ChildProcess;
  readonly #output: number;
  #read = 0;

  constructor(second: string) {
    const path = join(mkdtempSync(join(tmpdir(), "local-game-out-")), "output");
    this.#output = openSync(path, "w+");
    this.#child = spawn(PROGRAM, [], {
      stdio: ["pipe", this.#output, this.#output],
      env: { LD_PRELOAD: shimPath(), LOCAL_GAME_TIME: second },
    });
    rmSync(join(path, ".."), { recursive: true, force: true });
    this.#child.stdin?.on("error", () => undefined);
  }

  /** Types `data`, echoed as a terminal would, and reads until the game waits for more. */
  async exchange(data: string): Promise<{ text: string; exited: boolean }> {
    if (data !== "") await new Promise((resolve) => this.#child.stdin?.write(data, resolve));
    while (!this.#ended() && !this.#waits()) await new Promise(setImmediate);
    const text = `${data}${this.#unread()}`.replace(/\n/g, "\r\n");
    return { text, exited: this.#ended() };
  }

  close(): void {
    this.#child.kill("SIGKILL");
    closeSync(this.#output);
  }

  #ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /**
   * Exact: the kernel says which call the program sleeps in. A program that was just woken and has not run yet still
   * shows the call, so its state is asked for too.
   */
  #waits(): boolean {
    try {
      const call = readFileSync(`/proc/${this.#child.pid}/syscall`, "utf8").split(" ");
      if (call[0] !== READ[process.arch] || call[1] !== "0x0") return false;
      return readFileSync(`/proc/${this.#child.pid}/stat`, "utf8").split(") ")[1]?.startsWith("S") === true;
    } catch {
      return false;
    }
  }

  #unread(): string {
    const buffer = Buffer.alloc(65_536);
    const count = readSync(this.#output, buffer, 0, buffer.length, this.#read);
    this.#read += count;
    return buffer.toString("utf8", 0, count);
  }
}

/** A sandbox with the game's clock, terminal and files, and nothing else; close it when done. */
export class LocalMachine {
  #second = "0";
  #game: LocalProcess | undefined;
  readonly #files = new Map<string, Uint8Array>();
  /** Since the game was started. */
  #typed = "";

  get sandbox(): Context["sandbox"] {
    const subset = {
      openPty: async (_argv: readonly string[], { env }: { env: Readonly<Record<string, string>> }) => {
        this.close();
        this.#second = String(Date.parse(`${env["FAKETIME"]}Z`) / 1_000);
        this.#typed = "";
        this.#game = new LocalProcess(this.#second);
        return this.#terminal();
      },
      pty: () => this.#terminal(),
      files: {
        read: async (path: string) => this.#files.get(path) ?? new Uint8Array(),
        write: async (path: string, data: string | Uint8Array) => {
          this.#files.set(path, typeof data === "string" ? new TextEncoder().encode(data) : data);
        },
        mkdir: async () => undefined,
      },
    };
    return subset as unknown as Context["sandbox"];
  }

  get context(): Context {
    return { sandbox: this.sandbox, signal: new AbortController().signal };
  }

  close(): void {
    this.#game?.close();
    this.#game = undefined;
  }

  /** Another machine in the same state: the game started in the same second and told the same. */
  async fork(): Promise<LocalMachine> {
    const child = new LocalMachine();
    child.#second = this.#second;
    for (const [path, data] of this.#files) child.#files.set(path, data);
    child.#game = new LocalProcess(child.#second);
    child.#typed = this.#typed;
    await child.#game.exchange(this.#typed);
    return child;
  }

  #terminal(): ReturnType<Context["sandbox"]["pty"]> {
    const send = (data: string) => ({
      untilInput: async () => {
        const game = this.#game;
        if (game === undefined) throw new Error("The local game has not been started.");
        this.#typed += data;
        const { text, exited } = await game.exchange(data);
        const exit = exited ? { exitCode: 0, signal: null } : null;
        return { text, bytes: new TextEncoder().encode(text), reason: exited ? "exit" : "input", exit };
      },
    });
    return { name: "game", send, read: () => send(""), close: async () => this.close() } as unknown as ReturnType<
      Context["sandbox"]["pty"]
    >;
  }
}
