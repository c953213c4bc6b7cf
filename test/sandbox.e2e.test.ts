/** Sandboxes end to end: a real guest in a real microVM, on whatever host this machine can have. */

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type Checkpoint, connectHost, type ForkResult, type Host, type Sandbox } from "../sandbox-pool/index.js";

const IMAGE = { debian: {}, files: { "/srv/hello.txt": "hello from the image\n" } };

/** A shell on a terminal: its variables live in its memory and nowhere else. */
const SHELL = ["/bin/sh", "-c", "stty -echo; PS1='> ' exec /bin/sh -i"];

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await warmTemplate(host);
});

/** Shared on the host: a second run of these tests finds it warm. The key has to change with what `warmUp` does. */
async function warmTemplate(on: Host): Promise<Checkpoint> {
  return await on.templates.create(await on.images.build(IMAGE), {
    key: "test/sandbox.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      await shell(sandbox, "printf warm > /srv/warm");
      await (await sandbox.openPty(SHELL, { name: "shell" })).read().untilInput();
    },
  });
}

afterAll(async () => {
  await host?.close();
});

function sandboxesOf(results: readonly ForkResult[]): readonly Sandbox[] {
  return results.map((result) => {
    if (!result.ok) throw result.error;
    return result.sandbox;
  });
}

async function shell(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script]);
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function typed(sandbox: Sandbox, line: string): Promise<string> {
  return (await sandbox.pty("shell").send(`${line}\n`).untilInput()).text.replaceAll("\r", "");
}

describe("exec", () => {
  it("gives both streams, the exit code, and files of image and warm-up", async () => {
    await using sandbox = await template.fork();
    const result = await sandbox.exec(["/bin/sh", "-c", "cat /srv/hello.txt /srv/warm; echo no >&2; exit 7"]);
    expect(result).toMatchObject({ stdout: "hello from the image\nwarm", stderr: "no\n", exitCode: 7, signal: null });
  });

  it("takes stdin, variables and a directory, and ends a program by signal", async () => {
    await using sandbox = await template.fork();
    const script = 'cat; pwd; echo "$GREETING"; kill -TERM $$';
    const options = { stdin: "in\n", env: { GREETING: "Grüße" }, cwd: "/srv" };
    expect(await sandbox.exec(["/bin/sh", "-c", script], options)).toMatchObject({
      stdout: "in\n/srv\nGrüße\n",
      exitCode: null,
      signal: "SIGTERM",
    });
  });

  it("returns at once when a grandchild holds the pipe (B44)", async () => {
    await using sandbox = await template.fork();
    const started = performance.now();
    const result = await sandbox.exec(["/bin/sh", "-c", "sleep 20 & echo hi"], { timeoutMs: 10_000 });
    expect(result).toMatchObject({ stdout: "hi\n", exitCode: 0, timedOut: false });
    expect(performance.now() - started).toBeLessThan(8_000);
  });

  it("above its time is killed with its whole group (B44)", async () => {
    await using sandbox = await template.fork();
    const result = await sandbox.exec(["/bin/sh", "-c", "echo begun; sleep 321 & sleep 321"], { timeoutMs: 5_000 });
    expect(result).toMatchObject({ stdout: "begun\n", timedOut: true });
    expect(await shell(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 321 *$' || true")).toBe(
      "0\n",
    );
  });

  it("gives megabytes of three-byte characters exactly (B44)", async () => {
    await using sandbox = await template.fork();
    const count = 1_000_000;
    const result = await sandbox.exec(["/bin/sh", "-c", `yes '€' | head -n ${count} | tr -d '\\n'`]);
    expect(result.truncated).toBe(false);
    expect(result.stdoutBytes.length).toBe(3 * count);
    expect(result.stdout === "€".repeat(count)).toBe(true);
  });

  it("of a program that does not exist is a typed error", async () => {
    await using sandbox = await template.fork();
    await expect(sandbox.exec(["/no/such/program"])).rejects.toMatchObject({ code: "EXEC_NOT_FOUND" });
  });
});

describe("files", () => {
  it("come back byte for byte, large ones too", async () => {
    await using sandbox = await template.fork();
    const data = Uint8Array.from({ length: 3_000_000 }, (_, index) => (index * 7) % 256);
    await sandbox.files.mkdir("/srv/deep/down");
    await sandbox.files.write("/srv/deep/down/data", data, { mode: 0o600 });
    expect(Buffer.compare(await sandbox.files.read("/srv/deep/down/data"), data)).toBe(0);
    expect(await shell(sandbox, "stat -c '%a %s' /srv/deep/down/data")).toBe("600 3000000\n");
    await sandbox.files.append("/srv/deep/down/data", "x");
    expect(await sandbox.files.list("/srv/deep/down")).toEqual([{ name: "data", kind: "file" }]);
    await sandbox.files.remove("/srv/deep", { recursive: true });
    await expect(sandbox.files.read("/srv/deep/down/data")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
  });
});

/** Within 50 ms of what this machine's clock showed while the guest was asked. */
async function expectRightTime(sandbox: Sandbox): Promise<void> {
  const before = Date.now();
  const guest = Number(await shell(sandbox, "date +%s%3N"));
  const after = Date.now();
  expect(guest).toBeGreaterThanOrEqual(before - 50);
  expect(guest).toBeLessThanOrEqual(after + 50);
}

describe("fork", () => {
  it("of eight gives siblings that differ in randomness, boot id and hostname, and in nothing else (invariant 4)", async () => {
    const siblings = sandboxesOf(await template.fork(8));
    const seen = await Promise.all(
      siblings.map(async (sandbox) => ({
        hostname: await shell(sandbox, "cat /proc/sys/kernel/hostname"),
        bootId: await shell(sandbox, "cat /proc/sys/kernel/random/boot_id"),
        machineId: await shell(sandbox, "cat /etc/machine-id"),
        random: await shell(sandbox, "od -An -tx1 -N16 /dev/urandom"),
        warm: await shell(sandbox, "cat /srv/warm; ls /srv"),
      })),
    );
    for (const key of ["hostname", "bootId", "machineId", "random"] as const) {
      expect([key, new Set(seen.map((one) => one[key])).size]).toEqual([key, 8]);
    }
    expect(new Set(seen.map((one) => one.warm)).size).toBe(1);
    await Promise.all(siblings.map((sandbox) => sandbox.close()));
  });

  it("gives the right time to the first command, however long the checkpoint or the child has waited (invariant 4)", async () => {
    const uptime = async (sandbox: Sandbox): Promise<number> =>
      Number((await shell(sandbox, "cat /proc/uptime")).split(" ")[0]);
    const first = await template.fork();
    await expectRightTime(first);
    const begin = await uptime(first);
    await using checkpoint = await first.park();
    host.pool.forecast(checkpoint.id, 2);
    await vi.waitFor(() => expect(host.pool.ready(checkpoint.id)).toBeGreaterThan(0), { timeout: 10_000 });
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const { hits } = host.pool.stats();
    await using ready = await checkpoint.fork();
    expect(host.pool.stats().hits).toBe(hits + 1);
    await expectRightTime(ready);
    await using forked = await checkpoint.fork({ keepRandomness: true });
    await expectRightTime(forked);
    // Their own clock never runs backwards.
    for (const sandbox of [ready, forked]) expect(await uptime(sandbox)).toBeGreaterThanOrEqual(begin);
    await using parked = await ready.park();
    await using child = await parked.fork();
    await expectRightTime(child);
    host.pool.forecast(checkpoint.id, 0);
  });

  it("keeps memory and files of parent and children apart, at any depth (invariant 1)", async () => {
    const checkpoints: Checkpoint[] = [template];
    for (let depth = 1; depth <= 4; depth += 1) {
      const sandbox = await (checkpoints.at(-1) as Checkpoint).fork();
      await typed(sandbox, `DEPTH="$DEPTH:${depth}"`);
      await shell(sandbox, `printf :${depth} >> /srv/depth`);
      checkpoints.push(await sandbox.park());
    }
    for (const [depth, checkpoint] of checkpoints.entries()) {
      await using sandbox = await checkpoint.fork();
      const expected = Array.from({ length: depth }, (_, index) => `:${index + 1}`).join("");
      expect(await typed(sandbox, 'echo "[$DEPTH]"')).toBe(`[${expected}]\n> `);
      expect(await shell(sandbox, "cat /srv/depth 2>/dev/null || true")).toBe(expected);
      await shell(sandbox, "echo scribble > /srv/depth");
      await typed(sandbox, "DEPTH=scribble");
    }
    await Promise.all(checkpoints.slice(1).map((checkpoint) => checkpoint.release()));
  });

  it("goes two hundred levels deep, and the last has what every level wrote, in files and in memory (invariant 1)", async () => {
    const levels = 200;
    const checkpoints: Checkpoint[] = [];
    let parent = template;
    for (let level = 1; level <= levels; level++) {
      const child = await parent.fork();
      await child.files.append("/srv/levels", `${level}\n`);
      await child.pty("shell").send(`LEVELS="$LEVELS ${level}"\n`).untilInput();
      parent = await child.park();
      checkpoints.push(parent);
    }
    const all = Array.from({ length: levels }, (_, index) => index + 1);
    await using last = await parent.fork();
    expect((await shell(last, "cat /srv/levels")).trim().split("\n").map(Number)).toEqual(all);
    expect(await typed(last, "echo $LEVELS")).toContain(all.join(" "));
    // A level in between has its own part and nothing of what came after it.
    await using middle = await (checkpoints[99] as Checkpoint).fork();
    expect((await shell(middle, "cat /srv/levels")).trim().split("\n").map(Number)).toEqual(all.slice(0, 100));
    await Promise.all(checkpoints.map((checkpoint) => checkpoint.release()));
  });

  it("of a checkpoint taken while the sandbox goes on has that moment, and the sandbox its calls (invariant 1)", async () => {
    await using sandbox = await template.fork();
    await typed(sandbox, "N=1");
    await shell(sandbox, "echo one > /srv/moment");
    // Prints on in the sandbox, whatever is copied from it meanwhile.
    const running = sandbox.exec(["/bin/sh", "-c", "for i in 1 2 3 4; do sleep 0.3; echo $i; done"]);
    const checkpoints: Checkpoint[] = [];
    for (let moment = 1; moment <= 3; moment += 1) {
      checkpoints.push(await sandbox.checkpoint());
      await typed(sandbox, "N=$((N + 1))");
      await shell(sandbox, "echo more >> /srv/moment");
    }
    expect(await running).toMatchObject({ stdout: "1\n2\n3\n4\n", exitCode: 0 });
    await sandbox.close();
    const seen: string[] = [];
    for (const checkpoint of checkpoints) {
      await using child = await checkpoint.fork();
      seen.push(await typed(child, "echo $N; wc -l < /srv/moment"));
      await expectRightTime(child);
    }
    expect(seen).toEqual(["1\n1\n> ", "2\n2\n> ", "3\n3\n> "]);
    await Promise.all(checkpoints.map((checkpoint) => checkpoint.release()));
  });

  it("that is rewound is back at its checkpoint, with its programs, even after its guest has ended", async () => {
    await using sandbox = await template.fork();
    for (const harm of [
      "rm -rf /srv; echo gone > /etc/passwd",
      "kill -9 -1",
      "echo o > /proc/sysrq-trigger; sleep 9",
    ]) {
      await typed(sandbox, "N=harmed");
      await sandbox.exec(["/bin/sh", "-c", harm], { deadlineMs: 5_000 }).catch(() => undefined);
      await sandbox.rewind();
      expect(await typed(sandbox, "echo N=$N; cat /srv/warm; echo")).toBe("N=\nwarm\n> ");
    }
  });

  it("with a forecast comes out of the warm pool", async () => {
    const root = await (await template.fork()).park();
    // A pool of its own, which has nothing but this checkpoint in mind.
    await using joined = await connectHost({ join: host.address });
    const checkpoint = joined.checkpoints.get(root.id);
    for (let index = 0; index < 3; index += 1) {
      await using sandbox = await checkpoint.fork();
      await sandbox.ping();
    }
    const { hits } = joined.pool.stats();
    await vi.waitFor(() => {
      // Said again and again: a forecast fades, and a busy machine may need longer than that.
      joined.pool.forecast(root.id, 3);
      expect(joined.pool.ready(root.id)).toBeGreaterThanOrEqual(3);
    }, 60_000);
    const hostnames = new Set<string>();
    for (let index = 0; index < 3; index += 1) {
      await using sandbox = await checkpoint.fork();
      hostnames.add(await shell(sandbox, "cat /proc/sys/kernel/hostname"));
    }
    expect(joined.pool.stats().hits - hits).toBe(3);
    expect(hostnames.size).toBe(3);
    await root.release();
  });
});

describe("a sandbox", () => {
  it("that idles costs little memory", async () => {
    await using sandbox = await template.fork();
    await sandbox.ping();
    const { privateBytes, totalBytes } = await host.memoryUsage({ sandbox: sandbox.id });
    expect(privateBytes).toBeGreaterThan(0);
    expect(totalBytes).toBeLessThanOrEqual(3 * 1024 * 1024);
  });

  it("whose guest has ended shows its last words", async () => {
    await using sandbox = await template.fork();
    const script = "echo LAST WORDS > /dev/console; sleep 0.3; echo o > /proc/sysrq-trigger; sleep 9";
    await expect(shell(sandbox, script)).rejects.toMatchObject({ code: "SANDBOX_LOST" });
    expect(await sandbox.console()).toContain("LAST WORDS");
  });

  it("whose guest powers itself off is lost with a typed error, and its siblings are not (invariant 10)", async () => {
    await using sibling = await template.fork();
    await using sandbox = await template.fork();
    await expect(sandbox.exec(["/bin/sh", "-c", "echo o > /proc/sysrq-trigger; sleep 60"])).rejects.toMatchObject({
      code: "SANDBOX_LOST",
      poisons: true,
    });
    await sibling.ping();
  });

  it("whose call is aborted goes on, and the program has ended", async () => {
    await using sandbox = await template.fork();
    const call = sandbox.exec(["sleep", "322"], { signal: AbortSignal.timeout(500) });
    await expect(call).rejects.toMatchObject({ code: "ABORTED" });
    await vi.waitFor(
      async () =>
        expect(await shell(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 322 *$' || true")).toBe(
          "0\n",
        ),
      30_000,
    );
  });

  it("terminal matches patterns as JavaScript means them", async () => {
    await using sandbox = await template.fork();
    const output = await sandbox
      .pty("shell")
      .send("echo 'total: 42'\n")
      .until(/^total:\s(\d+)\r?\n/m);
    expect(output).toMatchObject({ reason: "pattern", text: expect.stringContaining("total: 42") });
  });
});

describe("a session", () => {
  it("leaves nothing on the host when it ends", async () => {
    const counts = async (): Promise<unknown> => {
      const { sandboxes, checkpoints, sessions } = await host.stats();
      return { leased: sandboxes.leased, hot: checkpoints.hot, sessions };
    };
    const before = await counts();
    const session = await connectHost();
    const root = await warmTemplate(session);
    const [first] = sandboxesOf(await root.fork(2));
    await first?.park();
    await session.close();
    await vi.waitFor(async () => expect(await counts()).toEqual(before), 30_000);
  });
});
