import { afterEach, describe, expect, it, vi } from "vitest";

import type { ConnectOptions } from "./api.js";
import { connectHost } from "./connect.js";

const ADDRESS = { kind: "kvm", endpoint: { unix: "/nowhere/daemon.sock" }, session: "s" } as const;

const PIN = `sha256:${"0".repeat(64)}`;

afterEach(() => {
  vi.unstubAllEnvs();
});

describe("connectHost", () => {
  it.each([
    ["an unknown kind", { kind: "docker" }, "options.kind"],
    ["an address without a port", { kind: "coppice://host" }, "options.kind"],
    ["a token that others on the way could read", { kind: "coppice://192.0.2.1:1", token: "t" }, "options.kind"],
    [
      "a fingerprint that is none",
      { kind: "coppice+tls://host:1", token: "t", fingerprint: "aa" },
      "options.fingerprint",
    ],
    ["a fingerprint and no TLS", { kind: "coppice://[::1]:1", token: "t", fingerprint: PIN }, "options.fingerprint"],
    [
      "a fingerprint and a CA",
      { kind: "coppice+tls://host:1", token: "t", fingerprint: PIN, ca: "c" },
      "options.fingerprint",
    ],
    ["a session to join and a fingerprint", { join: ADDRESS, fingerprint: PIN }, "options.fingerprint"],
    ["a port that does not exist", { kind: "coppice://host:70000", token: "t" }, "options.kind"],
    ["an option that does not exist", { hots: "x" }, "options"],
    ["a session to join and a kind", { join: ADDRESS, kind: "kvm" }, "options.kind"],
    ["an address that is none", { join: { ...ADDRESS, endpoint: {} } }, "options.join.endpoint"],
    ["a watermark above one", { pool: { lowWatermark: 2 } }, "options.pool.lowWatermark"],
  ])("with %s is refused and names the field", async (_, options, field) => {
    vi.stubEnv("COPPICE_TOKEN", "");
    await expect(connectHost(options as ConnectOptions)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(`\`${field}\``),
    });
  });

  it("to another machine without a token says how to give it, on the command line and in programs", async () => {
    vi.stubEnv("COPPICE_TOKEN", "");
    await expect(connectHost({ kind: "coppice://host:1" })).rejects.toMatchObject({
      code: "UNAUTHENTICATED",
      remedy: expect.stringMatching(/COPPICE_TOKEN.*connectHost/) as string,
    });
  });

  it("with a COPPICE_HOST that says nothing known is refused and names the variable", async () => {
    vi.stubEnv("COPPICE_HOST", "somewhere");
    await expect(connectHost()).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("COPPICE_HOST"),
    });
  });

  it.each([
    ["COPPICE_FINGERPRINT", "aa"],
    ["COPPICE_CA", "/no/such/file"],
  ])("with a %s that is none is refused and names the variable", async (name, value) => {
    vi.stubEnv(name, value);
    await expect(connectHost({ kind: "coppice+tls://host:1", token: "t" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(name),
    });
  });

  it("sends its token in plain text only where it was told to", async () => {
    vi.stubEnv("COPPICE_ALLOW_PLAINTEXT", "1");
    const options = { kind: "coppice://[::ffff:127.0.0.1]:1", token: "t" } as const;
    await expect(connectHost(options)).rejects.toMatchObject({ code: "HOST_UNREACHABLE" });
    await expect(connectHost({ ...options, allowPlaintext: false })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  it("takes the host of COPPICE_HOST and the token of COPPICE_TOKEN", async () => {
    vi.stubEnv("COPPICE_HOST", "coppice://127.0.0.1:1");
    vi.stubEnv("COPPICE_TOKEN", "secret");
    await expect(connectHost()).rejects.toMatchObject({
      code: "HOST_UNREACHABLE",
      message: expect.stringContaining("127.0.0.1:1"),
    });
  });

  it("to a session whose host is gone says so", async () => {
    await expect(connectHost({ join: ADDRESS })).rejects.toMatchObject({ code: "HOST_UNREACHABLE" });
  });

  it("aborted before it begins rejects", async () => {
    await expect(connectHost({ join: ADDRESS, signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: "ABORTED",
    });
  });
});
