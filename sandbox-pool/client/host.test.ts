import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { type FakeDaemon, startFakeDaemon } from "../../test/fakes/fake-daemon.js";
import type { Checkpoint, Host } from "../api.js";
import { connectHost } from "../connect.js";

const IMAGE = { debian: {} };

let daemon: FakeDaemon;
let host: Host;

beforeEach(async () => {
  daemon = await startFakeDaemon();
  host = await daemon.connect();
});

afterEach(async () => {
  await host.close();
  await daemon.stop();
});

async function template(options: Parameters<Host["templates"]["create"]>[1] = {}): Promise<Checkpoint> {
  return await host.templates.create(await host.images.build(IMAGE), options);
}

describe("fork", () => {
  it("gives a sandbox with the files of the template, and writes in it stay its own", async () => {
    const root = await template({ warmUp: (sandbox) => sandbox.files.write("/srv/note", "warm") });
    const [one, two] = [await root.fork(), await root.fork()];
    await one.files.append("/srv/note", " and changed");
    expect(Buffer.from(await one.files.read("/srv/note")).toString()).toBe("warm and changed");
    expect((await two.exec(["cat", "/srv/note"])).stdout).toBe("warm");
  });

  it("of a count gives one result a child, a failed one among them", async () => {
    const root = await template();
    daemon.inject({ method: "sandbox.fork", action: { kind: "failChild", index: 1 } });
    const results = await root.fork(3);
    expect(results.map((result) => result.ok)).toEqual([true, false, true]);
    expect(results[1]).toMatchObject({ error: { code: "FAULT_INJECTED", retryable: true } });
  });

  it.each([0, -1, 1.5, 1e6, Number.NaN])("of %d children is refused at once", async (count) => {
    const root = await template();
    await expect(root.fork(count)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", faultDomain: "user" });
    expect(daemon.calls).not.toContain("sandbox.fork");
  });
});

describe("join", () => {
  it("gives handles on what the session owns", async () => {
    const root = await template();
    await using sandbox = await root.fork();
    await sandbox.files.write("/a", "1");
    await using joined = await connectHost({ join: host.address });
    expect(Buffer.from(await joined.sandboxes.get(sandbox.id).files.read("/a")).toString()).toBe("1");
    await using sibling = await joined.checkpoints.get(root.id).fork();
    await expect(sibling.files.read("/a")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
  });
});
