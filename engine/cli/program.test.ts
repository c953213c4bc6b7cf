import type { CommanderError } from "commander";
import { describe, expect, it } from "vitest";

import { makeProgram } from "./program.js";

interface Outcome {
  readonly exitCode: number;
  readonly printed: string;
  readonly logged: string;
}

async function parse(...args: readonly string[]): Promise<Outcome> {
  const printed: string[] = [];
  const logged: string[] = [];
  const terminal = {
    print: (text: string): void => void printed.push(text),
    log: (text: string): void => void logged.push(text),
    isInteractive: false,
    columns: 80,
  };
  const program = makeProgram({
    terminal,
    signal: new AbortController().signal,
    onSignal: () => ({ [Symbol.dispose]: () => {} }),
    onDone: () => {},
  });
  let exitCode = 0;
  await program.parseAsync(args, { from: "user" }).catch((error: CommanderError) => {
    exitCode = error.exitCode;
  });
  return { exitCode, printed: printed.join("\n"), logged: logged.join("\n") };
}

describe("words and options", () => {
  it("of the demo are all explained, with examples", async () => {
    const { printed, exitCode } = await parse("demo", "--help");
    expect(exitCode).toBe(0);
    for (const option of ["--minutes", "--steps", "--seed", "--workers", "--in-flight", "--out", "--json", "--host"]) {
      expect(printed).toContain(option);
    }
    expect(printed).toContain("Examples:");
  });

  it.each([
    "demo",
    "doctor",
    "shell",
    "exec",
    "cp",
    "ps",
    "checkpoints tree",
    "image build",
    "image ls",
    "image rm",
    "host start",
    "host stop",
    "host status",
    "host stats",
    "host metrics",
  ])("of %s are explained, with an example of it", async (words) => {
    const { printed, exitCode } = await parse(...words.split(" "), "--help");
    expect(exitCode).toBe(0);
    expect(printed).toMatch(new RegExp(`Examples?:[^]*coppice ${words}`));
  });

  it.each(["exec", "image build"])("of %s show their defaults as people write them", async (words) => {
    const { printed } = await parse(...words.split(" "), "--help");
    expect(printed).not.toMatch(/\(default: (?:\{\}|\[\]|86400)\)/);
  });

  it("tell the version of the package", async () => {
    expect((await parse("--version")).printed).toMatch(/^\d+\.\d+\.\d+$/);
  });

  it.each([
    [["demo", "--stepz", "3"], "Did you mean --steps?"],
    [["demo", "--steps", "0"], "'--steps <n>' argument '0' is invalid. Give a whole number of at least 1."],
    [["demo", "--steps", "many"], "Give a whole number of at least 1."],
    [["demo", "--seed", "1.5"], "'--seed <n>' argument '1.5' is invalid"],
    [["demo", "--minutes", "-1"], "Give a number above 0"],
    [["demo", "--workers", "0"], "Give a whole number from 1 to 64."],
    [["demo", "--host", "cloud"], "Give auto, kvm, carrier, coppice://HOST:PORT or coppice+tls://HOST:PORT."],
    [["demo", "surplus"], "too many arguments"],
    [["host", "statz"], "Did you mean stats?"],
    [["shel", "debian"], "Did you mean shell?"],
    [["image", "lst"], "Did you mean ls?"],
    [["checkpoints", "tre"], "Did you mean tree?"],
    [["exec", "debian"], "missing required argument 'command'"],
    [["exec", "debian", "--memory", "1", "--", "true"], "Give a whole number from 80 to 65536."],
    [["exec", "debian", "--env", "nonsense", "--", "true"], "Give NAME=VALUE."],
    [["exec", "debian", "--cwd", "srv", "--", "true"], "Give a path in the guest that begins with /."],
    [["exec", "debian", "--user", ":x", "--", "true"], "Give USER or USER:GROUP"],
    [["exec", "debian", "--memroy", "100", "--", "true"], "Did you mean --memory?"],
    [["image", "build", "--file", "nonsense"], "Give GUEST=HOST"],
  ])("such as %j are refused, naming what is wrong", async (args, message) => {
    const { exitCode, printed, logged } = await parse(...args);
    expect(exitCode).not.toBe(0);
    expect(logged).toContain(message);
    expect(printed).toBe("");
  });
});
