/** A sandbox whose game says what a test tells it to. */

import type { adventure } from "./adventure.js";
import { RELEASE_COMMAND } from "./still-clock.js";

type Context = Parameters<typeof adventure.step>[0];

export interface StubAnswer {
  readonly text: string;
  readonly reason?: "input" | "exit" | "timeout";
}

export interface Stub {
  readonly context: Context;
  readonly typed: string[];
  readonly commands: string[];
  readonly files: Map<string, string>;
}

/** `moved`: whether the clock moved while the game started, one entry a start; the last one is repeated. */
export function stubGame(answers: readonly StubAnswer[], moved: readonly ("yes" | "no")[] = ["no"]): Stub {
  const left = [...answers];
  const starts = [...moved];
  const stub = { typed: [] as string[], commands: [] as string[], files: new Map<string, string>() };
  const send = (data: string) => ({
    untilInput: async () => {
      stub.typed.push(data);
      const { text, reason = "input" } = left.shift() ?? { text: "", reason: "timeout" };
      return { text, reason, exit: reason === "exit" ? { exitCode: 0, signal: null } : null };
    },
  });
  const terminal = { name: "game", send, read: () => send(""), close: async () => undefined };
  const sandbox = {
    pty: () => terminal,
    openPty: async () => terminal,
    exec: async (argv: readonly string[]) => {
      stub.commands.push(argv.join(" "));
      if (argv !== RELEASE_COMMAND) return { stdout: "", stderr: "", exitCode: 0 };
      return { stdout: `${starts.length > 1 ? starts.shift() : starts[0]}\n`, stderr: "", exitCode: 0 };
    },
    files: {
      mkdir: async () => undefined,
      write: async (path: string, data: string) => {
        stub.files.set(path, data);
      },
      read: async (path: string) => new TextEncoder().encode(stub.files.get(path) ?? ""),
    },
  };
  const context = { sandbox, signal: new AbortController().signal } as unknown as Context;
  return { ...stub, context };
}
