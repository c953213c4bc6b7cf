/** PostgreSQL from Debian under write load: forked at any moment it goes on, and recovers with every acknowledged commit. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/** Commits one transaction after the other, and says in memory which were acknowledged. */
const WRITER = `
import os, psycopg2
acknowledged = os.open("/dev/shm/acknowledged", os.O_WRONLY | os.O_CREAT, 0o644)
connection = psycopg2.connect("dbname=postgres host=/data")
number = 0
while True:
    number += 1
    with connection, connection.cursor() as cursor:
        cursor.execute("insert into rows values (%s, repeat(md5(%s::text), 20))", (number, number))
        cursor.execute("update rows set data = repeat(md5(data), 30) where number = %s", (number // 2,))
    os.pwrite(acknowledged, b"%d" % number, 0)
`;

/** Kills the server and the writer as a crash would, and drops what memory has kept of the files. */
const CRASH = `
import os, signal, time
def programs():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        if b"postgres" in line or b"/srv/writer.py" in line:
            yield int(pid)
while found := list(programs()):
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.02)
print(open("/dev/shm/acknowledged").read(), end="")
os.sync()
open("/proc/sys/vm/drop_caches", "w").write("3")
`;

/** Rows from 1 to the last without a gap, and the last is as late as what was acknowledged. Reads the table, not its index. */
const CHECK = `
import sys, psycopg2
with psycopg2.connect("dbname=postgres host=/data") as connection, connection.cursor() as cursor:
    cursor.execute("set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off")
    cursor.execute("select count(*), count(distinct number), min(number), max(number), count(data) from rows")
    count, distinct, lowest, highest, whole = cursor.fetchone()
    assert count == distinct == highest == whole and lowest == 1, (count, distinct, lowest, highest, whole)
    assert highest >= int(sys.argv[1]), (highest, sys.argv[1])
    cursor.execute("show fsync")
    print(cursor.fetchone()[0])
`;

/** The cluster that the package has made, with settings of its own: to make one takes an emulated guest half a minute. */
const START = `
set -e
if ! [ -e /data/cluster ]; then
  cp -a /var/lib/postgresql/*/main /data/cluster
  echo "local all all trust" > /data/cluster/pg_hba.conf
  : > /data/cluster/pg_ident.conf
  : > /data/cluster/postgresql.conf
fi
options="-c listen_addresses= -c unix_socket_directories=/data -c shared_buffers=16MB -c fsync=on"
exec /usr/lib/postgresql/*/bin/pg_ctl --pgdata=/data/cluster --log=/data/log --wait --timeout=200 --options="$options" start
`;

const IMAGE = {
  debian: { packages: ["postgresql", "python3-psycopg2"] },
  files: { "/srv/writer.py": WRITER, "/srv/crash.py": CRASH, "/srv/check.py": CHECK, "/srv/start": START },
};

/** Forks of the writing server that are looked at; COPPICE_DISK_FORKS for a soak. */
const ROUNDS = Number(process.env["COPPICE_DISK_FORKS"] ?? 3);

/** Moments are spread over some commits: milliseconds, each other than the last. */
const PAUSES_MS = [0, 37, 110, 5, 71];

/** Against hangs only: python in an emulated host's guest takes seconds to start. */
const PATIENCE_MS = 240_000;
const LIMIT_MS = 600_000 + ROUNDS * 60_000;

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await host.templates.create(await host.images.build(IMAGE), {
    memoryMiB: 256,
    key: "test/postgresql.e2e.test.ts 2",
    warmUp: async (sandbox) => {
      await shell(sandbox, "mkdir /data && chown postgres /data");
      await shell(sandbox, ". /srv/start", "postgres");
      const script =
        "import psycopg2; c = psycopg2.connect('dbname=postgres host=/data'); c.autocommit = True; " +
        "c.cursor().execute('create table rows (number integer primary key, data text)')";
      await shell(sandbox, `python3 -c "${script}"`, "postgres");
    },
  });
}, 900_000);

afterAll(async () => {
  await host?.close();
});

async function shell(sandbox: Sandbox, script: string, user = "root"): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], { timeoutMs: PATIENCE_MS, user });
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}${stdout}`);
  return stdout;
}

async function acknowledged(sandbox: Sandbox): Promise<number> {
  return Number(await shell(sandbox, "cat /dev/shm/acknowledged 2>/dev/null || echo 0"));
}

/** Until the writer has had another commit acknowledged than `seen`. */
async function untilNext(sandbox: Sandbox, seen: number): Promise<void> {
  const read = "cat /dev/shm/acknowledged 2>/dev/null || echo 0";
  await shell(sandbox, `until [ "$(${read})" -gt ${seen} ]; do sleep 0.05; done`);
}

/** The server and its client, in the middle of something, go on; then the server dies and recovers. */
async function expectEveryCommit(child: Sandbox): Promise<number> {
  await untilNext(child, await acknowledged(child));
  const last = Number(await shell(child, "python3 /srv/crash.py"));
  await shell(child, ". /srv/start", "postgres");
  expect(await shell(child, `python3 /srv/check.py ${last}`, "postgres")).toBe("on\n");
  return last;
}

/** Checkpoints of the writer that are made before it is stopped for the while in which their forks are looked at. */
const BATCH = 5;

describe("PostgreSQL under write load", { timeout: LIMIT_MS }, () => {
  it("in each fork goes on, and recovers from a crash with every acknowledged commit", async () => {
    let source = await template.fork();
    await shell(source, "setsid python3 /srv/writer.py </dev/null >/dev/shm/log 2>&1 &", "postgres");
    await untilNext(source, 0);
    const seen: number[] = [];
    while (seen.length < ROUNDS) {
      const checkpoints: Checkpoint[] = [];
      while (checkpoints.length < Math.min(BATCH, ROUNDS - seen.length)) {
        await new Promise((resolve) => setTimeout(resolve, PAUSES_MS[checkpoints.length]));
        checkpoints.push(await source.checkpoint());
      }
      await using parked = await source.park();
      for (const checkpoint of checkpoints) {
        await using child = await checkpoint.fork();
        seen.push(await expectEveryCommit(child));
        await checkpoint.release();
      }
      source = await parked.fork();
    }
    expect(await shell(source, "cat /dev/shm/log")).toBe("");
    await source.close();
    expect(Math.min(...seen)).toBeGreaterThan(1);
  });
});
