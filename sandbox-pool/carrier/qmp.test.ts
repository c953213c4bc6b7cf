import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { qmp } from "./qmp.js";

/** Against hangs only. */
const LIMIT_MS = 15_000;

const GREETING = { QMP: { version: {}, capabilities: [] } };
const REFUSAL = (desc: string) => ({ error: { class: "GenericError", desc } });

let folder: string;
let path: string;
let server: Server | undefined;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-qmp-"));
  path = join(folder, "qmp");
});

afterEach(async () => {
  server?.close();
  await rm(folder, { recursive: true, force: true });
});

/** Answers each command with the next of the messages; gives the names of the commands. */
async function qemu(greeting: string, ...answers: readonly (readonly object[])[]): Promise<readonly string[]> {
  const commands: string[] = [];
  const listening = createServer((socket) => {
    socket.on("error", () => {});
    socket.write(greeting);
    const rest = [...answers];
    createInterface({ input: socket }).on("line", (line) => {
      commands.push((JSON.parse(line) as { execute: string }).execute);
      const messages = rest.shift();
      if (messages === undefined) socket.destroy();
      for (const message of messages ?? []) socket.write(`${JSON.stringify(message)}\r\n`);
    });
  });
  server = listening;
  await new Promise<void>((resolve) => listening.listen(path, resolve));
  return commands;
}

const hello = `${JSON.stringify(GREETING)}\r\n`;
const done = { return: {} };

describe("qmp", () => {
  it("negotiates, runs the commands in order, and passes over events", async () => {
    const event = { event: "RESUME", timestamp: { seconds: 1, microseconds: 2 } };
    const commands = await qemu(hello, [event, done], [event, { return: 1 }], [{ return: 2 }]);
    expect(await qmp(path, [{ execute: "one" }, { execute: "two", arguments: { a: 1 } }], LIMIT_MS)).toEqual([1, 2]);
    expect(commands).toEqual(["qmp_capabilities", "one", "two"]);
  });

  it("takes an error that says that the work was done before for an answer", async () => {
    await qemu(hello, [done], [REFUSAL("Duplicate nodes with node-name='x'")], [done]);
    const add = { execute: "blockdev-add", doneBefore: /Duplicate nodes/ };
    expect(await qmp(path, [add, { execute: "device_add" }], LIMIT_MS)).toEqual([undefined, {}]);
  });

  it("ends at any other error, without the commands after it", async () => {
    const commands = await qemu(hello, [done], [REFUSAL("Could not open '/x'")], [done]);
    const add = { execute: "blockdev-add", doneBefore: /Duplicate nodes/ };
    await expect(qmp(path, [add, { execute: "device_add" }], LIMIT_MS)).rejects.toMatchObject({
      code: "CARRIER_REFUSED",
      message: expect.stringContaining("Could not open '/x'"),
    });
    expect(commands).toEqual(["qmp_capabilities", "blockdev-add"]);
  });

  it("says that there is no room where QEMU has no slot left", async () => {
    await qemu(hello, [done], [REFUSAL("PCI: no slot/function available for virtio-blk-pci, all in use")]);
    await expect(qmp(path, [{ execute: "device_add" }], LIMIT_MS)).rejects.toMatchObject({
      code: "CARRIER_IMAGES_FULL",
    });
  });

  it("fails with a typed error where nobody listens", async () => {
    const failure = qmp(path, [], LIMIT_MS);
    await expect(failure).rejects.toMatchObject({ code: "HOST_UNRESPONSIVE", retryable: true });
  });

  it("fails with a typed error where QEMU ends before it answers", async () => {
    await qemu(hello, [done]);
    await expect(qmp(path, [{ execute: "one" }], LIMIT_MS)).rejects.toMatchObject({ code: "HOST_UNRESPONSIVE" });
  });

  it.each(["", hello])("fails with a typed error where QEMU is silent after %j", async (greeting) => {
    await qemu(greeting, []);
    await expect(qmp(path, [{ execute: "one" }], 200)).rejects.toMatchObject({
      code: "HOST_UNRESPONSIVE",
      message: expect.stringContaining("No answer within 200 ms"),
    });
  });

  it.each(["no JSON\n", "null\n"])("fails with a typed error where it is told %j", async (greeting) => {
    await qemu(greeting);
    await expect(qmp(path, [], LIMIT_MS)).rejects.toMatchObject({ code: "HOST_UNRESPONSIVE" });
  });
});
