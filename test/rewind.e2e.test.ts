/** Rewinds in place, and deltas, end to end: a real guest in a real microVM, on whatever host this machine can have. */

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { type Checkpoint, connectHost, type Host, type RewindResult, type Sandbox } from "../sandbox-pool/index.js";

/** A shell on a terminal: its variables live in its memory and nowhere else. */
const SHELL = ["/bin/sh", "-c", "stty -echo; PS1='> ' exec /bin/sh -i"];

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await host.templates.create(await host.images.build({ debian: {} }), {
    key: "test/rewind.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      await shell(sandbox, "printf warm > /srv/warm; sync");
      await sandbox.exec(["/bin/sh", "-c", "while :; do sleep 0.05; echo tick >> /dev/shm/ticks; done"], {
        background: true,
        name: "ticker",
      });
      await (await sandbox.openPty(SHELL, { name: "shell" })).read().untilInput();
    },
  });
});

afterAll(async () => {
  await host?.close();
});

async function shell(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script]);
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function typed(sandbox: Sandbox, line: string): Promise<string> {
  return (await sandbox.pty("shell").send(`${line}\n`).untilInput()).text.replaceAll("\r", "");
}

/** Lives that began before the first rewind to their checkpoint can't go back in place: this is one that can. */
async function rewindable(from: Checkpoint): Promise<Sandbox> {
  const sandbox = await from.fork();
  await vi.waitFor(async () => {
    const { how } = await sandbox.rewind({ prefer: "in-place" });
    expect(how).toBe("in-place");
  }, 60_000);
  return sandbox;
}

async function backInPlace(sandbox: Sandbox): Promise<RewindResult> {
  const { id } = sandbox;
  const result = await sandbox.rewind({ prefer: "in-place" });
  expect(result.how).toBe("in-place");
  expect(sandbox.id).toBe(id);
  return result;
}

async function expectRightTime(sandbox: Sandbox): Promise<void> {
  const before = Date.now();
  const guest = Number(await shell(sandbox, "date +%s%3N"));
  expect(guest).toBeGreaterThanOrEqual(before - 50);
  expect(guest).toBeLessThanOrEqual(Date.now() + 50);
}

/** What every life can do, however it began. */
async function expectContract(sandbox: Sandbox): Promise<void> {
  await expectRightTime(sandbox);
  const run = await sandbox.exec(["/bin/sh", "-c", "cat; echo no >&2; exit 7"], { stdin: "in\n" });
  expect(run).toMatchObject({ stdout: "in\n", stderr: "no\n", exitCode: 7 });
  const bytes = Buffer.alloc(300_000, "file");
  await sandbox.files.write("/srv/bytes", bytes);
  expect(Buffer.from(await sandbox.files.read("/srv/bytes")).equals(bytes)).toBe(true);
  expect(await typed(sandbox, "N=$((N + 1)); echo N=$N; cat /srv/warm; echo")).toBe("N=1\nwarm\n> ");
  const ticks = () => shell(sandbox, "wc -l < /dev/shm/ticks");
  const before = Number(await ticks());
  await vi.waitFor(async () => expect(Number(await ticks())).toBeGreaterThan(before), 20_000);
  await using copy = await sandbox.checkpoint();
  await shell(sandbox, "rm /srv/bytes");
  await using child = await copy.fork();
  expect(await typed(child, "echo N=$N")).toBe("N=1\n> ");
  expect((await child.files.read("/srv/bytes")).length).toBe(bytes.length);
}

describe("a life that went back in place", () => {
  it.each([1, 4])("after %i rewinds can do what a forked one can", async (rewinds) => {
    await using forked = await template.fork();
    await expectContract(forked);
    await using sandbox = await rewindable(template);
    for (let count = 0; count < rewinds; count += 1) {
      await typed(sandbox, "N=harmed");
      await shell(sandbox, "rm -rf /srv/*; dd if=/dev/urandom of=/dev/shm/dirt bs=64k count=64 2>/dev/null");
      expect((await backInPlace(sandbox)).dirtyPages).toBeGreaterThan(1_000);
    }
    await expectContract(sandbox);
    await backInPlace(sandbox);
    await expectContract(sandbox);
  });

  it("has randomness, boot id and machine id of its own, and the right time (invariant 4)", async () => {
    await using sandbox = await rewindable(template);
    const names = "cat /proc/sys/kernel/random/boot_id /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1";
    const seen: string[] = [];
    for (let life = 0; life < 8; life += 1) {
      seen.push(await shell(sandbox, names));
      await expectRightTime(sandbox);
      await backInPlace(sandbox);
    }
    const lines = seen.map((life) => life.trim().split("\n"));
    for (const column of [0, 1, 2]) expect(new Set(lines.map((line) => line[column])).size).toBe(8);
  });

  it("fails what was under way, and hears nothing of it (B18)", async () => {
    await using sandbox = await rewindable(template);
    let failed = Promise.resolve();
    await new Promise<void>((resolve) => {
      const running = sandbox.exec(["/bin/sh", "-c", "while :; do echo x; done"], { onStdout: () => resolve() });
      failed = expect(running).rejects.toMatchObject({ code: "SANDBOX_CLOSED" });
    });
    await backInPlace(sandbox);
    await failed;
    expect(await typed(sandbox, "echo N=$N")).toBe("N=\n> ");
    expect((await sandbox.exec(["echo", "on"])).stdout).toBe("on\n");
  });

  it("that goes to another checkpoint, or whose guest has ended, is forked", async () => {
    await using sandbox = await rewindable(template);
    await typed(sandbox, "N=later");
    await using later = await sandbox.checkpoint();
    expect((await sandbox.rewind({ to: later, prefer: "in-place" })).how).toMatch(/-fork$/);
    expect(await typed(sandbox, "echo N=$N")).toBe("N=later\n> ");
    await shell(sandbox, "echo o > /proc/sysrq-trigger; sleep 9").catch(() => undefined);
    expect((await sandbox.rewind({ to: template, prefer: "in-place" })).how).toMatch(/-fork$/);
    expect(await typed(sandbox, "echo N=$N")).toBe("N=\n> ");
  });

  it("many times over takes no more memory than at first", async () => {
    await using sandbox = await rewindable(template);
    const dirty = "dd if=/dev/zero of=/dev/shm/dirt bs=64k count=32 2>/dev/null; printf x > /srv/file; sync";
    const used: number[] = [];
    for (let count = 0; count < 16; count += 1) {
      await shell(sandbox, dirty);
      await backInPlace(sandbox);
      used.push((await host.memoryUsage({ sandbox: sandbox.id })).privateBytes);
    }
    expect(used.at(-1)).toBeLessThan((used[4] ?? 0) * 1.5);
  });
});

describe("a delta", () => {
  it("is what was written since the parent, in memory and on the disk", async () => {
    const sandbox = await template.fork();
    const pages = 2_000;
    await shell(sandbox, `dd if=/dev/urandom of=/dev/shm/data bs=4k count=${pages} 2>/dev/null`);
    await shell(sandbox, "dd if=/dev/urandom of=/srv/file bs=4k count=100 conv=fsync 2>/dev/null");
    await using first = await sandbox.park();
    const delta = await first.delta();
    const count = (runs: (typeof delta)["pages"]): number => runs.reduce((sum, [, length]) => sum + length, 0);
    expect(delta.parent).toBe(template.id);
    expect(count(delta.pages)).toBeGreaterThanOrEqual(pages);
    expect(count(delta.pages)).toBeLessThanOrEqual(first.dirtyPages);
    expect(count(delta.blocks)).toBeGreaterThanOrEqual(100);
    expect(count(delta.blocks)).toBeLessThan(1_000);
    await using second = await (await first.fork()).park();
    const little = await second.delta();
    expect(little.parent).toBe(first.id);
    expect(count(little.pages)).toBeLessThan(pages);
    expect(count(little.pages)).toBeGreaterThan(0);
    expect(count(little.blocks)).toBeLessThan(100);
    await first.release();
    await expect(second.delta()).rejects.toMatchObject({ code: "CHECKPOINT_DROPPED" });
  });

  it("of a template is refused: it has no parent", async () => {
    await expect(template.delta()).rejects.toMatchObject({ code: "NO_PARENT" });
  });
});
