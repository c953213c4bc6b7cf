/** A sandbox whose game says what a test tells it to. */

import type { adventure } from "./adventure.js";

type Context = Parameters<typeof adventure.step>[0];

export interface StubAnswer {
  readonly text: string;
  readonly reason?: "input" | "exit" | "timeout";
}

export interface Stub {
  readonly context: Context;
  readonly typed: string[];
  readonly env: Record<string, string>;
  readonly files: Map<string, string>;
}

export function stubGame(answers: readonly StubAnswer[]): Stub {
  const left = [...answers];
  const stub = { typed: [] as string[], env: {} as Record<string, string>, files: new Map<string, string>() };
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
    openPty: async (_argv: readonly string[], options: { env: Readonly<Record<string, string>> }) => {
      Object.assign(stub.env, options.env);
      return terminal;
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
