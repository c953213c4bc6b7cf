import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { DEFAULTS } from "../defaults.js";
import { decode, encode } from "./codec.js";
import { FrameReader, frame } from "./frames.js";
import { dial } from "./handshake.js";
import { CLIENT_PROTOCOL } from "./messages.js";

type Message = Record<string, unknown>;

const WELCOME = { protocol: CLIENT_PROTOCOL, version: "test", session: "s", hostKind: "kvm" };

/** A peer that a test plays by hand. */
class ScriptedPeer {
  readonly received: Message[] = [];
  readonly path: string;
  readonly #server: Server;
  #socket: Socket | undefined;

  constructor(path: string, greeting: object | null) {
    this.path = path;
    this.#server = createServer((socket) => {
      this.#socket = socket;
      const reader = new FrameReader();
      socket.on("error", () => undefined);
      socket.on("data", (bytes: Buffer) => {
        reader.push(bytes);
        for (let payload = reader.next(); payload !== undefined; payload = reader.next()) {
          this.received.push(decode(payload) as Message);
        }
        if (greeting !== null && this.received.length === 1) {
          this.send(greeting);
        }
      });
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.path, resolve));
  }

  send(...messages: object[]): void {
    this.sendRaw(Buffer.concat(messages.map((message) => frame(encode(message)))));
  }

  sendRaw(bytes: Uint8Array): void {
    this.#socket?.write(bytes);
  }

  async request(method: string): Promise<number> {
    return await vi.waitFor(
      () => {
        const found = this.received.find((message) => message["method"] === method);
        expect(found).toBeDefined();
        return Number(found?.["id"]);
      },
      { interval: 2 },
    );
  }

  drop(): void {
    this.#socket?.destroy();
  }

  async stop(): Promise<void> {
    this.drop();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

let directory: string;
let peer: ScriptedPeer;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "coppice-connection-"));
});

afterEach(async () => {
  await peer?.stop();
  await rm(directory, { recursive: true });
});

async function startPeer(greeting: object | null = { welcome: WELCOME }): Promise<ScriptedPeer> {
  peer = new ScriptedPeer(join(directory, "peer.sock"), greeting);
  await peer.listen();
  return peer;
}

async function connected(): Promise<Awaited<ReturnType<typeof dial>>> {
  await startPeer();
  return await dial({ endpoint: { unix: peer.path } });
}

/** Milliseconds until the kernel asks the peer of the connection to `port` whether it is there; undefined: it will not. */
async function keepAliveDueMs(port: number): Promise<number | undefined> {
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const rows = (await readFile("/proc/net/tcp", "utf8")).split("\n").map((row) => row.trim().split(/\s+/));
  const timer = rows.find(([, , remote, state]) => remote === `0100007F:${hex}` && state === "01")?.[5];
  const [kind, when] = timer?.split(":") ?? [];
  return kind === "02" ? Number.parseInt(when ?? "", 16) * 10 : undefined;
}

describe("dial", () => {
  it.skipIf(process.platform !== "linux")("has the kernel ask a silent host whether it is there", async () => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => socket.write(frame(encode({ welcome: WELCOME }))));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const connection = await dial({ endpoint: { host: "127.0.0.1", port }, token: "secret" });
    await vi.waitFor(async () =>
      expect(await keepAliveDueMs(port)).toBeLessThanOrEqual(DEFAULTS.connection.keepAliveMs),
    );
    await connection.close();
    server.close();
  });

  it("sends protocol, token, session and the time, the time as an integer", async () => {
    await startPeer();
    const connection = await dial({ endpoint: { unix: peer.path }, token: "secret", session: "s" });
    expect(peer.received[0]).toMatchObject({ protocol: CLIENT_PROTOCOL, token: "secret", session: "s" });
    expect(typeof peer.received[0]?.["realtimeNs"]).toBe("bigint");
    await connection.close();
  });

  it("to nobody says that the host is unreachable and where it looked", async () => {
    await startPeer();
    const path = join(directory, "other.sock");
    await expect(dial({ endpoint: { unix: path } })).rejects.toMatchObject({
      code: "HOST_UNREACHABLE",
      retryable: true,
      message: expect.stringContaining(path),
    });
  });

  it("refused gives the daemon's reason", async () => {
    const failure = { code: "TOKEN_WRONG", message: "Wrong", faultDomain: "user", retryable: false, remedy: "Fix" };
    await startPeer({ refused: failure });
    await expect(dial({ endpoint: { unix: peer.path } })).rejects.toMatchObject({ ...failure });
  });

  it("to another protocol version names both", async () => {
    await startPeer({ welcome: { ...WELCOME, protocol: 99 } });
    await expect(dial({ endpoint: { unix: peer.path } })).rejects.toMatchObject({
      code: "PROTOCOL_MISMATCH",
      message: expect.stringMatching(/99.*1/),
    });
  });

  it("without an answer gives up in time", async () => {
    await startPeer(null);
    await expect(dial({ endpoint: { unix: peer.path }, timeoutMs: 20 })).rejects.toMatchObject({
      code: "HOST_UNREACHABLE",
    });
  });

  it("aborted rejects", async () => {
    await startPeer(null);
    const controller = new AbortController();
    const dialled = dial({ endpoint: { unix: peer.path }, signal: controller.signal });
    controller.abort();
    await expect(dialled).rejects.toMatchObject({ code: "ABORTED" });
  });

  it("takes an event that came in one piece with the greeting", async () => {
    await startPeer(null);
    const dialled = dial({ endpoint: { unix: peer.path } });
    await vi.waitFor(() => expect(peer.received).toHaveLength(1));
    peer.send({ welcome: WELCOME }, { event: "sandbox.ended", params: { sandbox: "sb" } });
    const connection = await dialled;
    const events: string[] = [];
    connection.subscribe({ onEvent: (event) => events.push(event) });
    await vi.waitFor(() => expect(events).toEqual(["sandbox.ended"]));
    await connection.close();
  });
});

describe("call", () => {
  it("answered out of order gives each caller its own answer, chunks and stages", async () => {
    const connection = await connected();
    const first = connection.call("first", { a: 1 }, { maxChunkBytes: 100 });
    const second = connection.call("second", {}, { maxChunkBytes: 100 });
    const [one, two] = [await peer.request("first"), await peer.request("second")];
    peer.send(
      { id: two, chunk: { stream: "stdout", data: Buffer.from("2") } },
      { id: one, chunk: { stream: "stdout", data: Buffer.from("1") } },
      { id: two, result: { n: 2 }, stages: [["fork", 5]] },
      { id: one, result: null },
    );
    expect(await second).toMatchObject({ result: { n: 2 }, stages: [["fork", 5]], chunks: [{ stream: "stdout" }] });
    const reply = await first;
    expect(reply.result).toBeNull();
    expect(Buffer.from(reply.chunks[0]?.data ?? []).toString()).toBe("1");
    expect(connection.inFlight).toBe(0);
    await connection.close();
  });

  it("refused by the daemon rejects with all fields of the failure", async () => {
    const connection = await connected();
    const call = connection.call("m", {});
    const failure = { message: "No\u001b[31m", faultDomain: "guest", retryable: true, remedy: "Try", poisons: true };
    peer.send({ id: await peer.request("m"), error: { code: "SOME_CODE", ...failure } });
    await expect(call).rejects.toMatchObject({ code: "SOME_CODE", ...failure, message: "No\u{fffd}[31m" });
    await connection.close();
  });

  it("aborted rejects at once, sends a cancel, and hands a late result to who can undo it", async () => {
    const connection = await connected();
    const controller = new AbortController();
    const late: unknown[] = [];
    const call = connection.call("m", {}, { signal: controller.signal, onLate: (reply) => late.push(reply.result) });
    const id = await peer.request("m");
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "ABORTED" });
    await vi.waitFor(() => expect(peer.received.at(-1)).toEqual({ cancel: id }));
    expect(connection.inFlight).toBe(1);
    peer.send({ id, result: "made anyway" });
    await vi.waitFor(() => expect(late).toEqual(["made anyway"]));
    expect(connection.inFlight).toBe(0);
    await connection.close();
  });

  it("aborted before it is made sends nothing", async () => {
    const connection = await connected();
    const call = connection.call("m", {}, { signal: AbortSignal.abort() });
    await expect(call).rejects.toMatchObject({ code: "ABORTED" });
    await connection.close();
    expect(peer.received).toHaveLength(1);
  });

  it("without an answer ends a little after the daemon's own deadline", async () => {
    const connection = await connected();
    const started = performance.now();
    await expect(connection.call("m", {}, { deadlineMs: 20 })).rejects.toMatchObject({
      code: "DEADLINE_EXCEEDED",
      retryable: true,
    });
    expect(performance.now() - started).toBeGreaterThan(1_000);
    await connection.close();
  });

  it("with more output than was asked for is ended", async () => {
    const connection = await connected();
    const call = connection.call("m", {}, { maxChunkBytes: 3 });
    const id = await peer.request("m");
    peer.send({ id, chunk: { stream: "data", data: Buffer.from("four") } });
    await expect(call).rejects.toMatchObject({ code: "OUTPUT_LIMIT_EXCEEDED", faultDomain: "guest" });
    await connection.close();
  });

  it("pending when the connection is lost rejects as retryable, like every later call", async () => {
    const connection = await connected();
    const calls = [connection.call("a", {}), connection.call("b", {})];
    const lost = calls.map((call) => expect(call).rejects.toMatchObject({ code: "HOST_LOST", retryable: true }));
    await peer.request("b");
    peer.drop();
    await Promise.all(lost);
    await expect(connection.call("c", {})).rejects.toMatchObject({ code: "HOST_LOST" });
  });

  it("pending when the peer complains of a broken protocol rejects with its words", async () => {
    const connection = await connected();
    const call = expect(connection.call("a", {})).rejects.toMatchObject({
      code: "PROTOCOL_VIOLATION",
      message: "Id 0",
    });
    await peer.request("a");
    const failure = { code: "PROTOCOL_VIOLATION", message: "Id 0", faultDomain: "user", retryable: false };
    peer.send({ event: "protocol.violation", params: failure });
    await call;
  });

  it("pending when the connection is closed here says so", async () => {
    const connection = await connected();
    const call = expect(connection.call("a", {})).rejects.toMatchObject({ code: "HOST_CLOSED" });
    await connection.close();
    await call;
  });

  it.each([
    ["a frame over the limit", Buffer.from([0xff, 0xff, 0xff, 0xff])],
    ["bytes that are no message", frame(Buffer.from([0xc1]))],
    ["a message of no known form", frame(encode({ id: 1, what: 2 }))],
    ["an answer to a call that was never made", frame(encode({ id: 77, result: 1 }))],
  ])("pending when the peer sends %s rejects, and the connection ends", async (_, bytes) => {
    const connection = await connected();
    const call = expect(connection.call("a", {})).rejects.toMatchObject({ code: "PROTOCOL_VIOLATION" });
    await peer.request("a");
    peer.sendRaw(bytes);
    await call;
    expect(connection.ended).toMatchObject({ code: "PROTOCOL_VIOLATION" });
  });
});
