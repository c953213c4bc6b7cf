/** Programs and files in a real guest: what streams, what is large, what goes on in a fork. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type Checkpoint, type ConnectOptions, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message), pool: { maxReady: 0 } });
  const image = await host.images.build({ debian: {} });
  template = await host.templates.create(image, { key: "test/exec-files.e2e.test.ts 1", memoryMiB: 512 });
});

afterAll(async () => {
  await host?.close();
});

const MIB = 1024 * 1024;

/** How many processes have this name. The minimal Debian has no ps. */
async function countOf(sandbox: Sandbox, name: string): Promise<string> {
  return await shell(sandbox, `cat /proc/[0-9]*/comm | grep -cx ${name} || true`);
}

/** Bytes that no two pieces have in common, so that one that is lost, doubled or moved is seen. */
function numbered(length: number): Buffer {
  const words = new Uint32Array(length / 4).map((_, index) => index * 2_654_435_761);
  return Buffer.from(words.buffer);
}

async function* inPieces(data: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < data.length; offset += size) yield data.subarray(offset, offset + size);
}

async function joined(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

async function shell(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(script);
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

describe("exec", () => {
  it("of a text runs it in the guest's shell", async () => {
    await using sandbox = await template.fork();
    expect(await sandbox.exec("echo $((6 * 7)) | tr 2 3; exit 4")).toMatchObject({ stdout: "43\n", exitCode: 4 });
  });

  it("as another user has its groups and home, and not root's files", async () => {
    await using sandbox = await template.fork();
    const script = "id -un; id -u; id -gn; echo $HOME; cat /etc/shadow";
    const result = await sandbox.exec(script, { user: "daemon" });
    expect(result.stdout).toBe("daemon\n1\ndaemon\n/usr/sbin\n");
    expect(result.exitCode).toBe(1);
    expect((await sandbox.exec("id -u; id -G", { user: "4242:17" })).stdout).toBe("4242\n17\n");
    await expect(sandbox.exec("true", { user: "nobody-there" })).rejects.toMatchObject({ code: "EXEC_USER_UNKNOWN" });
  });

  it("takes stdin from a stream and gives both streams away as they come, byte for byte", async () => {
    await using sandbox = await template.fork();
    const input = numbered(MIB);
    const [stdout, stderr]: [Uint8Array[], Uint8Array[]] = [[], []];
    const result = await sandbox.exec("tee /dev/stderr", {
      stdin: inPieces(input, 100_001),
      onStdout: (piece) => void stdout.push(piece),
      onStderr: (piece) => void stderr.push(piece),
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: "", stderr: "", truncated: false });
    expect(Buffer.compare(Buffer.concat(stdout), input)).toBe(0);
    expect(Buffer.compare(Buffer.concat(stderr), input)).toBe(0);
  });

  it("lets the program wait for a callback, and only that program", async () => {
    await using sandbox = await template.fork();
    let taken = 0;
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const running = sandbox.exec("head -c 8000000 /dev/zero; echo done >&2", {
      onStdout: async (piece) => {
        await held;
        taken += piece.length;
      },
    });
    // The window and a pipe are far smaller than what it wants to print.
    await shell(sandbox, "sleep 1");
    expect(await countOf(sandbox, "head")).toBe("1\n");
    expect(taken).toBe(0);
    release();
    expect(await running).toMatchObject({ exitCode: 0, stderr: "done\n" });
    expect(taken).toBe(8_000_000);
  });

  it("ends, and its program with it, when a callback or the source of stdin throws", async () => {
    await using sandbox = await template.fork();
    const onStdout = (): void => {
      throw new Error("enough");
    };
    await expect(sandbox.exec("yes", { onStdout })).rejects.toThrow("enough");
    // biome-ignore lint/correctness/useYield: a source that fails before its first piece
    const broken = (async function* (): AsyncGenerator<Uint8Array> {
      throw new Error("no input");
    })();
    await expect(sandbox.exec("cat", { stdin: broken })).rejects.toThrow("no input");
    await expect.poll(() => countOf(sandbox, "yes"), { timeout: 20_000 }).toBe("0\n");
  });

  it("ends with the program though the source of stdin goes on for ever", async () => {
    await using sandbox = await template.fork();
    const endless = (async function* (): AsyncGenerator<string> {
      for (;;) yield "y\n".repeat(10_000);
    })();
    expect(await sandbox.exec("head -n 1", { stdin: endless })).toMatchObject({ stdout: "y\n", exitCode: 0 });
  });

  it("of a hundred programs at once gives each its own output", async () => {
    await using sandbox = await template.fork();
    const results = await Promise.all(Array.from({ length: 100 }, (_, index) => sandbox.exec(["echo", String(index)])));
    expect(results.map(({ stdout }) => stdout)).toEqual(results.map((_, index) => `${index}\n`));
  });

  it("counts what was dropped of a long output without a newline", async () => {
    await using sandbox = await template.fork();
    const result = await sandbox.exec("head -c 20000000 /dev/zero", { outputLimitBytes: MIB });
    expect(result).toMatchObject({ truncated: true, droppedBytes: 20_000_000 - MIB, exitCode: 0 });
    expect(result.stdoutBytes.length).toBe(MIB);
  });
});

describe("a background process", () => {
  it("goes on in every fork, each with an end of its own", async () => {
    await using sandbox = await template.fork();
    const script = "echo begun; read -r line; echo got $line; exit 3";
    const started = await sandbox.exec(script, { background: true, name: "job", stdinOpen: true });
    expect(started.pid).toBeGreaterThan(1);
    await expect.poll(async () => (await sandbox.processes())[0]?.running).toBe(true);
    await using checkpoint = await sandbox.checkpoint();
    await using fork = await checkpoint.fork();
    await fork.process("job").write("fork\n", { end: true });
    expect(await fork.process("job").wait()).toMatchObject({ stdout: "begun\ngot fork\n", exitCode: 3 });
    expect(await sandbox.process("job").kill()).toBe(true);
    expect(await sandbox.process("job").wait()).toMatchObject({ stdout: "begun\n", exitCode: null, signal: "SIGTERM" });
    expect(await sandbox.process("job").kill()).toBe(false);
    await expect(sandbox.process("nobody").wait()).rejects.toMatchObject({ code: "PROCESS_NOT_FOUND" });
  });
});

describe("files", () => {
  it("of many pieces go in and come out as streams", async () => {
    await using sandbox = await template.fork();
    const data = numbered(12 * MIB);
    await sandbox.files.writeStream("/dev/shm/large", inPieces(data, 3_000_000), { mode: 0o600 });
    expect(await sandbox.files.stat("/dev/shm/large")).toMatchObject({ kind: "file", size: data.length, mode: 0o600 });
    expect(Buffer.compare(await joined(sandbox.files.readStream("/dev/shm/large")), data)).toBe(0);
  });

  it("whose source fails leave nothing behind", async () => {
    await using sandbox = await template.fork();
    const broken = (async function* (): AsyncGenerator<string> {
      yield "half";
      throw new Error("source failed");
    })();
    await sandbox.files.mkdir("/srv/up");
    await expect(sandbox.files.writeStream("/srv/up/file", broken)).rejects.toThrow("source failed");
    expect(await sandbox.files.list("/srv/up")).toEqual([]);
  });

  it("that are replaced while they are read are an error, not a mixture", async () => {
    await using sandbox = await template.fork();
    await sandbox.files.write("/srv/file", Buffer.alloc(3 * MIB, "a"));
    const reading = (async () => {
      let pieces = 0;
      for await (const _ of sandbox.files.readStream("/srv/file")) {
        if (pieces++ === 0) await sandbox.files.write("/srv/file", Buffer.alloc(3 * MIB, "b"));
      }
    })();
    await expect(reading).rejects.toMatchObject({ code: "FILE_CHANGED" });
  });

  it("are moved, linked and looked at", async () => {
    await using sandbox = await template.fork();
    const { files } = sandbox;
    await files.write("/srv/one", "1");
    await files.move("/srv/one", "/srv/two");
    await files.symlink("two", "/srv/link");
    expect(await files.readlink("/srv/link")).toBe("two");
    expect((await files.stat("/srv/link")).kind).toBe("symlink");
    expect(Buffer.from(await files.read("/srv/link")).toString()).toBe("1");
    expect(Math.abs((await files.stat("/srv/two")).mtimeMs - Date.now())).toBeLessThan(60_000);
    await expect(files.move("/srv/one", "/srv/x")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
    await expect(files.readlink("/srv/two")).rejects.toMatchObject({ code: "FILE_WRONG_KIND" });
  });

  it("go through tar with modes, owners and links", async () => {
    await using sandbox = await template.fork();
    await shell(
      sandbox,
      "mkdir -p /srv/a/b && cd /srv/a && echo x > b/f && chmod 750 b && chown 1:2 b/f && ln -s b/f l",
    );
    const archive = await joined(sandbox.files.archive("/srv/a"));
    await using other = await template.fork();
    await other.files.extract("/srv/copy", inPieces(archive, 1_000));
    const list = "find . -printf '%p %m %U:%G %l\\n' | sort";
    expect(await shell(other, `cd /srv/copy && ${list}`)).toBe(await shell(sandbox, `cd /srv/a && ${list}`));
    await expect(other.files.extract("/srv/x", Buffer.from("no archive"))).rejects.toMatchObject({
      code: "ARCHIVE_FAILED",
    });
  });

  it("are no archive where the guest has no tar", async () => {
    await using sandbox = await template.fork();
    await shell(sandbox, "rm $(command -v tar)");
    await expect(joined(sandbox.files.archive("/etc"))).rejects.toMatchObject({ code: "ARCHIVE_TOOL_MISSING" });
    await expect(sandbox.files.extract("/srv", Buffer.alloc(1024))).rejects.toMatchObject({
      code: "ARCHIVE_TOOL_MISSING",
    });
  });

  it("never lead out of the guest", async () => {
    await using sandbox = await template.fork();
    await sandbox.files.symlink("/../../../../etc/hostname", "/srv/out");
    const [through, own] = [await sandbox.files.read("/srv/out"), await sandbox.files.read("/etc/hostname")];
    expect(Buffer.from(through).toString()).toBe(Buffer.from(own).toString());
  });
});

/** For a session of its own on the very host of these tests. */
function sameHost(): ConnectOptions {
  const { endpoint, token } = host.address;
  if ("unix" in endpoint || token === undefined) return { kind: "kvm" };
  return { kind: `coppice://${endpoint.host}:${endpoint.port}`, token };
}

describe("a guest of another session", () => {
  it("is listed with its owner's label, and can be looked into", async () => {
    await using sandbox = await template.fork();
    await using other = await connectHost(sameHost());
    const { sandboxes, checkpoints } = await other.inventory({ memory: true });
    const row = sandboxes.find(({ id }) => id === sandbox.id);
    expect(row).toMatchObject({ state: "leased", checkpoint: template.id });
    expect(row?.owner.client).toContain(`process ${process.pid}`);
    expect(row?.memory?.totalBytes).toBeGreaterThan(0);
    expect(JSON.stringify({ sandboxes, checkpoints })).not.toContain(host.address.session);
    expect(checkpoints.find(({ id }) => id === template.id)).toMatchObject({ owner: null });
    expect(await other.guests.get(sandbox.id).exec(["cat", "/etc/hostname"])).toMatchObject({ exitCode: 0 });
    await expect(other.sandboxes.get(sandbox.id).ping()).rejects.toMatchObject({ code: "SANDBOX_NOT_FOUND" });
  });
});
