/** The command line end to end, as a person and as a script use it. */

import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { execa } from "execa";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type BuiltSources, buildSources } from "./engine/build-sources.js";

const MAIN = "engine/cli/main.ts";
const ESCAPE = "\x1d";

let built: BuiltSources;
let folder: string;
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  built = await buildSources(MAIN);
  folder = await mkdtemp(join(tmpdir(), "coppice-cli-"));
  // A host of its own: what others run would be in the lists.
  env = { XDG_RUNTIME_DIR: folder, XDG_STATE_HOME: folder, TERM: "xterm" };
});

afterAll(async () => {
  await coppice(["host", "stop"]);
  await built[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function coppice(args: readonly string[], options: { readonly input?: string | Uint8Array } = {}) {
  const stdin = options.input === undefined ? ({ stdin: "ignore" } as const) : options;
  return execa(process.execPath, [built.path(MAIN), ...args], { reject: false, env: { ...env }, ...stdin } as const);
}

/** What it prints; its complaints are the test's where it fails. */
async function succeeds(args: readonly string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await coppice(args);
  if (exitCode !== 0) throw new Error(`coppice ${args.join(" ")} ended with ${exitCode}: ${stderr}`);
  return stdout;
}

/** As one word of a shell's command: a clone may lie in a folder with any name. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** A shell in a real terminal: `script` gives it one. */
class Terminal {
  readonly #child;
  #unread = "";
  #wake: () => void = () => undefined;

  constructor(...args: readonly string[]) {
    // A terminal of no size, which is what `script` gives here, is not what a person has. `exec`: Ctrl-C goes to
    // everything in front, and some shells would end by it before the program does.
    const command = `stty rows 24 cols 80; exec ${[process.execPath, built.path(MAIN), ...args].map(quoted).join(" ")}`;
    const child = execa("script", ["-qefc", command, "/dev/null"], { reject: false, env: { ...env }, stdin: "pipe" });
    child.stdout.on("data", (data: Buffer) => {
      this.#unread += data.toString("latin1");
      this.#wake();
    });
    child.on("exit", () => this.#wake());
    this.#child = child;
  }

  type(text: string): void {
    this.#child.stdin.write(text, "latin1");
  }

  /** What comes until `text` has come. */
  async until(text: string): Promise<string> {
    for (;;) {
      const at = this.#unread.indexOf(text);
      if (at !== -1) {
        const seen = this.#unread.slice(0, at + text.length);
        this.#unread = this.#unread.slice(at + text.length);
        return seen;
      }
      if (this.#child.exitCode !== null) throw new Error(`ended before ${text}: ${this.#unread}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async exitCode(): Promise<number | undefined> {
    return (await this.#child).exitCode;
  }
}

describe("coppice exec", () => {
  it("passes stdin, both streams and the exit code on", async () => {
    const { stdout, stderr, exitCode } = await coppice(
      ["exec", "debian", "--env", "A=b", "--", "sh", "-c", "cat; echo $A >&2; exit 7"],
      { input: "in" },
    );
    expect({ stdout, exitCode }).toEqual({ stdout: "in", exitCode: 7 });
    expect(stderr.split("\n").at(-1)).toBe("b");
  });

  it("passes a signal on, and ends as the program does", async () => {
    const script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.1; done";
    const child = coppice(["exec", "debian", "--", "sh", "-c", script]);
    // Its end, too early, is a failure below.
    await Promise.race([new Promise((resolve) => child.stdout.once("data", resolve)), child]);
    child.kill("SIGTERM");
    const { exitCode, stdout } = await child;
    expect({ exitCode, stdout }).toEqual({ exitCode: 9, stdout: "ready\ngot it" });
  });

  it("says by its exit code what kept the program from running", async () => {
    expect((await coppice(["exec", "debian", "--", "no-such-program"])).exitCode).toBe(127);
    expect((await coppice(["exec", "debian", "--timeout", "0.5", "--", "sleep", "60"])).exitCode).toBe(124);
    expect((await coppice(["exec", "debain", "--", "true"])).exitCode).toBe(125);
    const gone = await coppice(["exec", "sb-000000-1", "--", "true"]);
    expect([gone.exitCode, gone.stderr.includes("coppice ps")]).toEqual([125, true]);
  });
});

describe("coppice shell", () => {
  it("checkpoints, forks, switches, rewinds, and is seen from outside", async () => {
    const terminal = new Terminal("shell", "debian");
    await terminal.until("# ");
    terminal.type("X=one; stty size\r");
    await terminal.until("24 80");
    terminal.type(`${ESCAPE}c`);
    await terminal.until("checkpoint c1");
    terminal.type("X=two; echo first-$X\r");
    await terminal.until("first-two");
    terminal.type(`${ESCAPE}f`);
    const [, id = ""] = /sandbox 2 \((\S+)\)/.exec(await terminal.until("forked from c1")) ?? [];
    terminal.type("echo fork-$X > /srv/out; cat /srv/out\r");
    await terminal.until("fork-one");

    const { sandboxes } = JSON.parse((await coppice(["ps", "--json"])).stdout) as { sandboxes: { id: string }[] };
    expect(sandboxes.map((sandbox) => sandbox.id)).toContain(id);
    expect((await coppice(["checkpoints", "tree"])).stdout).toMatch(/"c1".*\n.*sb-/);
    await succeeds(["cp", `${id}:/srv/out`, join(folder, "out")]);
    expect(await readFile(join(folder, "out"), "utf8")).toBe("fork-one\n");
    await writeFile(join(folder, "in"), "from outside\n");
    await succeeds(["cp", join(folder, "in"), `${id}:/srv/`]);
    expect(await succeeds(["exec", id, "--", "cat", "/srv/in"])).toBe("from outside");

    await truncate(join(folder, "in"), 2 ** 31);
    const killed = coppice(["cp", join(folder, "in"), `${id}:/srv/large`]);
    const guestFiles = () => succeeds(["exec", id, "--", "ls", "-A", "/srv"]);
    while (!(await guestFiles()).includes(".coppice-")) expect(killed.exitCode).toBeNull();
    killed.kill("SIGKILL");
    await killed;
    // The daemon learns of it, and tells the guest: until the test's own limit.
    while ((await guestFiles()).includes(".coppice-"));

    terminal.type(`${ESCAPE}s`);
    await terminal.until("sandbox 1");
    terminal.type("echo back-$X\r");
    await terminal.until("back-two");
    terminal.type(`${ESCAPE}r`);
    await terminal.until("is back at c1");
    terminal.type("echo again-$X\r");
    await terminal.until("again-one");
    terminal.type(`${ESCAPE}l`);
    await terminal.until("checkpoints:");
    terminal.type("exit 3\r");
    await terminal.until("sandbox 1 has ended");
    terminal.type("echo left-$X\r");
    await terminal.until("left-one");
    terminal.type("exit 6\r");
    expect(await terminal.exitCode()).toBe(6);
  });

  it("ends, and says why, when its host is stopped elsewhere", async () => {
    const terminal = new Terminal("shell", "debian");
    await terminal.until("# ");
    await succeeds(["host", "stop"]);
    await terminal.until("The host of this shell has ended");
    expect(await terminal.exitCode()).toBe(125);
  });

  it("without a terminal is refused", async () => {
    const { exitCode, stderr } = await coppice(["shell", "debian"]);
    expect([exitCode, stderr.includes("coppice exec")]).toEqual([125, true]);
  });
});

describe("coppice exec into a pipe", () => {
  it("ends quietly when its reader has left, as other tools do", async () => {
    const child = coppice(["exec", "debian", "--", "yes"]);
    await Promise.race([new Promise((resolve) => child.stdout.once("data", resolve)), child]);
    child.stdout.destroy();
    const { exitCode, stderr } = await child;
    expect([exitCode, stderr.includes("error")]).toEqual([141, false]);
  });
});

describe("coppice host stats", () => {
  it("prints once where nobody looks, and as JSON", async () => {
    expect((await coppice(["host", "stats"])).stdout).toContain("since start");
    const stats = JSON.parse((await coppice(["host", "stats", "--json"])).stdout) as { counters: { forks: number } };
    expect(stats.counters.forks).toBeGreaterThan(0);
  });

  it("on a terminal follows until Ctrl-C, which is no failure", async () => {
    const terminal = new Terminal("host", "stats", "--interval", "0.2");
    await terminal.until("a second");
    terminal.type("\x03");
    expect(await terminal.exitCode()).toBe(0);
  });
});

describe("coppice image", () => {
  it("builds, lists and boots by id", async () => {
    const { stdout: id } = await coppice(["image", "build", "debian"]);
    expect(id).toMatch(/^sha256:[0-9a-f]{64}$/);
    const { images } = JSON.parse((await coppice(["image", "ls", "--json"])).stdout) as { images: { id: string }[] };
    expect(images.map((image) => image.id)).toContain(id);
    const booted = await coppice(["exec", id.slice(0, 20), "--", "cat", "/etc/debian_version"]);
    expect(booted.stdout).toMatch(/^12\./);
    expect((await coppice(["image", "rm", "sha256:000000"])).exitCode).toBe(1);
  });
});
