import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { DEFAULTS } from "../defaults.js";
import { encode } from "./codec.js";
import { frame } from "./frames.js";
import { dialWhenFree } from "./handshake.js";
import { CLIENT_PROTOCOL } from "./messages.js";

type Answer = (socket: Socket) => void;

const FULL = { code: "TOO_MANY_CONNECTIONS", message: "Too many", faultDomain: "host", retryable: true };
const refuse: Answer = (socket) => socket.end(frame(encode({ refused: FULL })));
const cut: Answer = (socket) => socket.destroy();
const welcome: Answer = (socket) => {
  const greeting = { protocol: CLIENT_PROTOCOL, version: "test", session: "s", hostKind: "kvm" };
  socket.write(frame(encode({ welcome: greeting })));
};

let folder: string;
let server: Server;
let answers: Answer[];
let served: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-dial-"));
  answers = [];
  served = 0;
  // The last answer is that to all that follow.
  server = createServer((socket) => {
    socket.on("error", () => undefined);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    socket.once("data", () => {
      served += 1;
      answer?.(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(join(folder, "s"), resolve));
});

afterEach(async () => {
  vi.restoreAllMocks();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

describe("a host that is full", () => {
  it("is asked again, however it turned the connection away", async () => {
    answers = [refuse, cut, welcome];
    const connection = await dialWhenFree({ endpoint: { unix: join(folder, "s") } });
    expect(connection.welcome.session).toBe("s");
    await connection.close();
  });

  it("and stays so is said to be full, though the last connection ended without a word", async () => {
    answers = [refuse, cut];
    vi.spyOn(performance, "now").mockImplementation(() => (served < 2 ? 0 : DEFAULTS.connection.fullPatienceMs));
    const dialling = dialWhenFree({ endpoint: { unix: join(folder, "s") } });
    await expect(dialling).rejects.toMatchObject({ code: "TOO_MANY_CONNECTIONS" });
  });

  it("is not asked again after an abort", async () => {
    answers = [refuse];
    const controller = new AbortController();
    const dialling = dialWhenFree({ endpoint: { unix: join(folder, "s") }, signal: controller.signal });
    setImmediate(() => controller.abort());
    await expect(dialling).rejects.toMatchObject({ code: "ABORTED" });
  });
});
