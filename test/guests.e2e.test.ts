/** Whole Linux guests end to end: what runs in one goes on in every fork, and knows that it is another life where it asks. */

import { readFileSync } from "node:fs";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/** A server on loopback with a thread that watches a directory. It answers each line with what it holds, in JSON. */
const SERVER = `
import ctypes, json, os, random, socket, ssl, struct, sys, threading, uuid
sys.path.insert(0, "/srv")
from generation import Generation

libc = ctypes.CDLL(None)
generation = Generation()
events = []
count = 0

def watch():
    watcher = libc.inotify_init()
    libc.inotify_add_watch(watcher, b"/srv/watched", 0x100)  # IN_CREATE
    while True:
        data = os.read(watcher, 4096)
        events.append(data[16:].rstrip(b"\\0").decode())

os.makedirs("/srv/watched", exist_ok=True)
threading.Thread(target=watch, daemon=True).start()
random.random(), ssl.RAND_bytes(8)
listener = socket.create_server(("127.0.0.1", 7777))
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            count += 1
            renewed = generation.renew() if line == "renew\\n" else None
            print(json.dumps({
                "pid": os.getpid(), "count": count, "events": events, "renewed": renewed,
                "random": random.random(), "openssl": ssl.RAND_bytes(16).hex(), "kernel": uuid.uuid4().hex,
            }), file=lines, flush=True)
`;

/** Connects anew for each request, or keeps one connection: the shell's descriptor 3, which the guest's terminal holds. */
const ASK = `
import socket, sys
with socket.create_connection(("127.0.0.1", 7777)) as server, server.makefile("rw") as lines:
    print(sys.argv[1], file=lines, flush=True)
    print(lines.readline(), end="")
`;

const IMAGE = {
  debian: { packages: ["gdb", "python3"] },
  files: {
    "/srv/server.py": SERVER,
    "/srv/ask.py": ASK,
    "/srv/generation.py": readFileSync(new URL("../examples/uniqueness/generation.py", import.meta.url), "utf8"),
  },
};

const SIBLINGS = 4;

interface Answer {
  readonly pid: number;
  readonly count: number;
  readonly events: readonly string[];
  readonly renewed: boolean | null;
  readonly random: number;
  readonly openssl: string;
  readonly kernel: string;
}

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await host.templates.create(await host.images.build(IMAGE), {
    memoryMiB: 320,
    key: "test/guests.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      const pty = async (name: string, argv: readonly string[]) =>
        await (await sandbox.openPty(argv, { name })).read().untilInput();
      await run(sandbox, "setsid python3 /srv/server.py >/srv/server.log 2>&1 &");
      await run(sandbox, "until grep -q :1E61 /proc/net/tcp; do sleep 0.1; done");
      await pty("python", ["python3", "-q", "-i"]);
      await typed(sandbox, "python", "seen = ['before the checkpoint']");
      await pty("gdb", ["gdb", "-q", "-nx", "--args", "/bin/sleep", "1000"]);
      for (const line of ["set style enabled off", "starti", "set $kept = 42"]) await typed(sandbox, "gdb", line);
    },
  });
});

afterAll(async () => {
  await host?.close();
});

async function run(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], { timeoutMs: 60_000 });
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function typed(sandbox: Sandbox, terminal: string, line: string): Promise<string> {
  return (await sandbox.pty(terminal).send(`${line}\n`).untilInput()).text.replaceAll("\r", "");
}

async function ask(sandbox: Sandbox, question: "plain" | "renew"): Promise<Answer> {
  return JSON.parse(await run(sandbox, `python3 /srv/ask.py ${question}`)) as Answer;
}

async function siblings(from: Checkpoint): Promise<readonly Sandbox[]> {
  return (await from.fork(SIBLINGS)).map((result) => {
    if (!result.ok) throw result.error;
    return result.sandbox;
  });
}

async function closeAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
}

describe("what runs when a checkpoint is taken", () => {
  it("goes on in every fork: a server, a watch on a directory, a language's prompt, a debugger's session", async () => {
    const forks = await siblings(template);
    const pids = new Set<number>();
    for (const [index, sandbox] of forks.entries()) {
      await run(sandbox, `touch /srv/watched/of-${index}`);
      const answer = await ask(sandbox, "plain");
      expect(answer).toMatchObject({ count: 1, events: [`of-${index}`], renewed: null });
      pids.add(answer.pid);
      expect(await typed(sandbox, "python", `seen.append(${index}); print(seen)`)).toContain(
        `['before the checkpoint', ${index}]`,
      );
      expect(await typed(sandbox, "gdb", "print $kept")).toContain("= 42");
    }
    expect(pids.size).toBe(1);

    // The stopped program takes its next steps, each fork's for itself.
    const counters = [];
    for (const [index, sandbox] of forks.entries()) {
      await typed(sandbox, "gdb", `stepi ${1 + index * 10}`);
      counters.push(/0x[0-9a-f]+/u.exec(await typed(sandbox, "gdb", "print/x $pc"))?.[0]);
    }
    expect(new Set(counters).size).toBe(SIBLINGS);
    await closeAll(forks);
  });

  it("goes on in forks of forks, through park and through a checkpoint of a sandbox that goes on (invariant 1)", async () => {
    const first = await template.fork();
    await ask(first, "plain");
    await using live = await first.checkpoint();
    await ask(first, "plain");
    await typed(first, "python", "seen.append('after it')");
    await using parked = await first.park();
    await using fromLive = await live.fork();
    await using fromParked = await parked.fork();
    expect((await ask(fromLive, "plain")).count).toBe(2);
    expect((await ask(fromParked, "plain")).count).toBe(3);
    expect(await typed(fromLive, "python", "print(seen)")).toContain("['before the checkpoint']");
    expect(await typed(fromParked, "python", "print(seen)")).toContain("['before the checkpoint', 'after it']");
    expect(await typed(fromParked, "gdb", "print $kept")).toContain("= 42");
  });
});

describe("a program that draws numbers (invariant 4, B06)", () => {
  it("draws the kernel's anew in each fork, and its own as its siblings do", async () => {
    const forks = await siblings(template);
    const answers = await Promise.all(forks.map((sandbox) => ask(sandbox, "plain")));
    expect(new Set(answers.map(({ kernel }) => kernel)).size).toBe(SIBLINGS);
    expect(new Set(answers.map(({ random }) => random)).size).toBe(1);
    await closeAll(forks);
  });

  it("that asks for the generation knows its new life once, and draws other numbers than its siblings", async () => {
    const forks = await siblings(template);
    const answers = await Promise.all(forks.map((sandbox) => ask(sandbox, "renew")));
    for (const { renewed } of answers) expect(renewed).toBe(true);
    for (const field of ["kernel", "random", "openssl"] as const) {
      expect(new Set(answers.map((answer) => answer[field])).size, field).toBe(SIBLINGS);
    }
    for (const sandbox of forks) expect((await ask(sandbox, "renew")).renewed).toBe(false);
    await closeAll(forks);
  });
});

describe("a guest of 5 GiB (B13)", () => {
  it("has memory on both sides of the hole, and its forks have what was written, and a delta of that size", async () => {
    await using large = await host.templates.create(await host.images.build(IMAGE), { memoryMiB: 5_120 });
    await using sandbox = await large.fork();
    const pages = 4_096;
    expect(Number(await run(sandbox, "awk '/MemTotal/ { print $2 }' /proc/meminfo"))).toBeGreaterThan(4_800 * 1_024);
    expect(await run(sandbox, "grep -c 'System RAM' /proc/iomem")).toMatch(/^[3-9]/u);
    await run(sandbox, `head -c ${pages * 4_096} /dev/urandom > /dev/shm/pattern`);
    const sum = await run(sandbox, "sha256sum /dev/shm/pattern");
    await using parked = await sandbox.park();
    expect(parked.dirtyPages).toBeGreaterThanOrEqual(pages);
    expect(parked.dirtyPages).toBeLessThan(2 * pages);
    const forks = await siblings(parked);
    for (const fork of forks) expect(await run(fork, "sha256sum /dev/shm/pattern")).toBe(sum);
    await closeAll(forks);
  });
});
