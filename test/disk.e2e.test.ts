/** The writable disk end to end: larger than memory, forked with it, never torn. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/** Appends numbered blocks past the page cache, and says in memory how far the disk has acknowledged them. */
const DIRECT_WRITER = `
import mmap, os
fd = os.open("/data/direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_SYNC)
acknowledged = os.open("/run/direct", os.O_WRONLY | os.O_CREAT)
block = mmap.mmap(-1, 4096)
number = 0
while True:
    number += 1
    block[:8] = number.to_bytes(8, "little")
    os.pwritev(fd, [block], number % 64 * 4096)
    os.pwrite(acknowledged, b"%d" % number, 0)
`;

/** Every block that was acknowledged is there, or a later one in its place; then new direct I/O. */
const DIRECT_CHECK = `
import mmap, os
last = int(open("/run/direct").read())
fd = os.open("/data/direct", os.O_RDONLY | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
for number in range(max(1, last - 63), last + 1):
    os.preadv(fd, [block], number % 64 * 4096)
    found = int.from_bytes(block[:8], "little")
    assert found >= number and found % 64 == number % 64, (number, found, last)
new = os.open("/data/new", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_SYNC)
for index in range(20):
    os.pwritev(new, [block], index * 4096)
print(last)
`;

/** Commits one row after the other, and says in memory which commits were acknowledged. */
const SQLITE_WRITER = `
import os, sqlite3
acknowledged = os.open("/run/sqlite", os.O_WRONLY | os.O_CREAT)
database = sqlite3.connect("/data/rows.db", isolation_level=None)
database.execute("pragma synchronous = full")
database.execute("create table rows (number integer primary key, data blob)")
number = 0
while True:
    number += 1
    database.execute("begin")
    database.execute("insert into rows values (?, randomblob(700))", (number,))
    database.execute("update rows set data = randomblob(900) where number = ?", (number // 2,))
    database.execute("commit")
    os.pwrite(acknowledged, b"%d" % number, 0)
`;

/** What the disk has, after a crash of the writer and without anything that memory had kept of it. */
const SQLITE_CHECK = `
import os, signal, sqlite3, time
os.kill(int(open("/run/sqlite.pid").read()), signal.SIGKILL)
last = int(open("/run/sqlite").read())
os.sync()
open("/proc/sys/vm/drop_caches", "w").write("3")
database = sqlite3.connect("/data/rows.db")
assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
count, highest = database.execute("select count(*), max(number) from rows").fetchone()
assert count == highest and highest >= last, (count, highest, last)
print(last)
`;

const IMAGE = {
  debian: { packages: ["python3"] },
  files: {
    "/srv/direct-writer.py": DIRECT_WRITER,
    "/srv/direct-check.py": DIRECT_CHECK,
    "/srv/sqlite-writer.py": SQLITE_WRITER,
    "/srv/sqlite-check.py": SQLITE_CHECK,
  },
};

/** Forks of a writer that are looked at; COPPICE_DISK_FORKS for a soak. */
const ROUNDS = Number(process.env["COPPICE_DISK_FORKS"] ?? 3);

/** Against hangs only: python in an emulated host's guest takes seconds to start. */
const PATIENCE_MS = 240_000;
const LIMIT_MS = 600_000 + ROUNDS * 30_000;

/** Without what nobody here needs, which takes half of its start. */
const PYTHON = "python3 -ISE";

const SHELL = ["/bin/sh", "-c", "stty -echo; PS1='> ' exec /bin/sh -i"];

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await host.templates.create(await host.images.build(IMAGE), {
    key: "test/disk.e2e.test.ts 2",
    warmUp: async (sandbox) => {
      await shell(sandbox, "mkdir /data /kept && printf warm > /kept/warm");
      await (await sandbox.openPty(SHELL, { name: "shell" })).read().untilInput();
    },
  });
});

afterAll(async () => {
  await host?.close();
});

async function shell(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], { timeoutMs: PATIENCE_MS });
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function forks(of: Checkpoint, count: number): Promise<readonly Sandbox[]> {
  return (await of.fork(count)).map((result) => {
    if (!result.ok) throw result.error;
    return result.sandbox;
  });
}

async function expectNoDiskErrors(sandbox: Sandbox): Promise<void> {
  expect(await shell(sandbox, "dmesg | grep -iE 'EXT4-fs (error|warning)|I/O error' || true")).toBe("");
}

/** Starts a program that goes on when the call is over. */
async function startInBackground(sandbox: Sandbox, script: string, pidFile: string): Promise<void> {
  await shell(sandbox, `setsid ${PYTHON} ${script} </dev/null >/run/log 2>&1 & echo $! >${pidFile}`);
}

describe("disk", { timeout: LIMIT_MS }, () => {
  it("is below the root, of the size that was asked for, and takes only what was written", async () => {
    await using sandbox = await template.fork();
    expect(await shell(sandbox, "awk '$2 == \"/\" { print $3 }' /proc/mounts")).toBe("overlay\n");
    expect(Number(await shell(sandbox, "df -BM --output=size / | tail -1 | tr -dc 0-9"))).toBeGreaterThan(7_500);
    const { diskBytes } = await host.memoryUsage({ sandbox: sandbox.id });
    expect(diskBytes).toBeLessThan(64 * 1024 * 1024);
  });

  it("holds files larger than the guest's memory, and gives their space back", async () => {
    const [memoryMiB, diskMiB, bytes] = [96, 512, 110 * 1024 * 1024];
    await using small = await host.templates.create(await host.images.build(IMAGE), { memoryMiB, diskMiB });
    await using sandbox = await small.fork();
    const pattern = `yes 0123456789abcde | head -c ${bytes}`;
    await shell(sandbox, `${pattern} > /large && sync`);
    expect((await host.memoryUsage({ sandbox: sandbox.id })).diskBytes).toBeGreaterThan(bytes);
    await using parent = await sandbox.park();
    expect(parent.dirtyBlocks).toBeGreaterThan(bytes / 4096);
    await using child = await parent.fork();
    await shell(child, `${pattern} | cmp - /large && rm /large && sync`);
    await using smaller = await child.park();
    expect(smaller.dirtyBlocks).toBeLessThan(1_000);
  });

  it("0 MiB large is none: the writable layer lies in memory", async () => {
    await using small = await host.templates.create(await host.images.build(IMAGE), { diskMiB: 0 });
    await using sandbox = await small.fork();
    expect(await shell(sandbox, "ls /sys/block; printf x > /written; cat /written")).toBe("vda\nx");
  });
});

describe("forks", { timeout: LIMIT_MS }, () => {
  it("of one checkpoint have each their own files (B18)", async () => {
    const children = await forks(template, 8);
    await Promise.all(
      children.map(async (child, number) => {
        const write = `for i in $(seq 200); do echo ${number} > /kept/c${number}-$i; done`;
        await shell(child, `${write}; rm $(seq -f /kept/c${number}-%g 50); sync`);
      }),
    );
    await Promise.all(children.slice(0, 4).map((child) => child.close()));
    for (const [number, child] of children.entries()) {
      if (number < 4) continue;
      expect(await shell(child, "cat /kept/c* | sort | uniq -c | tr -s ' '; ls /kept | wc -l")).toBe(
        ` 150 ${number}\n151\n`,
      );
      await expectNoDiskErrors(child);
      await child.close();
    }
    await using again = await template.fork();
    expect(await shell(again, "ls /kept; cat /kept/warm")).toBe("warm\nwarm");
    await expectNoDiskErrors(again);
  });

  it("keep files and memory over five rounds of checkpoint and fork (B19)", async () => {
    let sandbox = await template.fork();
    for (let round = 1; round <= 5; round += 1) {
      await shell(sandbox, `echo ${round} > /kept/r${round}`);
      await sandbox.pty("shell").send("n=$((n+1))\n").untilInput();
      await using checkpoint = await sandbox.park();
      sandbox = await checkpoint.fork();
    }
    const { text } = await sandbox.pty("shell").send('echo "n is $n, $(cat /kept/r* | tr -d "\\n")"\n').untilInput();
    expect(text).toContain("n is 5, 12345");
    await sandbox.close();
  });

  it("of a sandbox that writes past its cache lose no request under way (B08)", async () => {
    await using source = await template.fork();
    await startInBackground(source, "/srv/direct-writer.py", "/run/direct.pid");
    await shell(source, "until [ -s /run/direct ]; do sleep 0.05; done");
    let last = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      await using checkpoint = await source.checkpoint();
      await using child = await checkpoint.fork();
      // A program that waits for a request which nobody serves could not be killed.
      const seen = Number(await shell(child, `kill -9 $(cat /run/direct.pid); ${PYTHON} /srv/direct-check.py`));
      expect(seen).toBeGreaterThan(last);
      last = seen;
      await expectNoDiskErrors(child);
    }
    expect(Number(await shell(source, `${PYTHON} /srv/direct-check.py`))).toBeGreaterThan(last);
  });

  it("of a database under load have every acknowledged commit and are whole", async () => {
    await using source = await template.fork();
    await startInBackground(source, "/srv/sqlite-writer.py", "/run/sqlite.pid");
    await shell(source, "until [ -s /run/sqlite ]; do sleep 0.05; done");
    let last = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      await using checkpoint = await source.checkpoint();
      await using child = await checkpoint.fork();
      const seen = Number(await shell(child, `${PYTHON} /srv/sqlite-check.py`));
      expect(seen).toBeGreaterThanOrEqual(last);
      last = seen;
    }
    expect(last).toBeGreaterThan(1);
  });
});
