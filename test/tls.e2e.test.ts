/** A client and a daemon with a network in between. No guest runs: the daemon needs no KVM for this. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";

import { findNativePrograms } from "../sandbox-pool/artifacts/native.js";
import { connectHost } from "../sandbox-pool/index.js";

const TOKEN = "0123456789abcdef0123456789abcdef";

interface Daemon {
  readonly process: ChildProcess;
  readonly port: number;
  readonly fingerprint: string | undefined;
}

let folder: string;
let secured: Daemon;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "coppice-tls-"));
  for (const name of ["vmlinux", "initrd"]) writeFileSync(join(folder, name), name);
  writeFileSync(join(folder, "token"), TOKEN);
  secured = await start("secured", ["--tls"]);
});

afterAll(async () => {
  vi.unstubAllEnvs();
  await stop(secured);
  await rm(folder, { recursive: true, force: true });
});

async function start(name: string, options: readonly string[]): Promise<Daemon> {
  const { coppiced, vmm } = await findNativePrograms();
  const file = (base: string) => join(folder, base);
  const child = spawn(
    coppiced,
    [
      ...["serve", "--tcp", "127.0.0.1:0", "--token-file", file("token"), "--state-dir", file(name)],
      ...["--vmm", vmm, "--kernel", file("vmlinux"), "--initrd", file("initrd"), "--cgroup", "none"],
      ...options,
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  const said = /listening on (?:tls:\/\/)?127\.0\.0\.1:(\d+)(?: (sha256:[0-9a-f]{64}))?$/.exec(line);
  expect(said, line).not.toBeNull();
  return { process: child, port: Number(said?.[1]), fingerprint: said?.[2] };
}

async function stop(daemon: Daemon | undefined): Promise<void> {
  if (daemon === undefined) return;
  const ended = once(daemon.process, "exit");
  daemon.process.kill();
  await ended;
}

function fingerprint(): string {
  if (secured.fingerprint === undefined) throw new Error("the daemon said no fingerprint");
  return secured.fingerprint;
}

describe("a host behind TLS", () => {
  it("is reached with its fingerprint, and joined from elsewhere with its address", async () => {
    await using host = await connectHost({
      kind: `coppice+tls://127.0.0.1:${secured.port}`,
      token: TOKEN,
      fingerprint: fingerprint(),
    });
    expect(host.info).toMatchObject({ kind: "kvm", limits: { memory: "measured" } });
    await using joined = await connectHost({ join: host.address });
    expect(joined.address).toEqual(host.address);
  });

  it("is reached with its fingerprint and token from the environment", async () => {
    vi.stubEnv("COPPICE_HOST", `coppice+tls://localhost:${secured.port}`);
    vi.stubEnv("COPPICE_FINGERPRINT", fingerprint());
    vi.stubEnv("COPPICE_TOKEN", TOKEN);
    await using host = await connectHost();
    expect(host.info.kind).toBe("kvm");
    vi.unstubAllEnvs();
  });

  it("is reached with the certificate that has signed its own", async () => {
    const ca = readFileSync(join(folder, "secured", "tls-certificate.pem"), "utf8");
    await using host = await connectHost({ kind: `coppice+tls://127.0.0.1:${secured.port}`, token: TOKEN, ca });
    expect(host.info.kind).toBe("kvm");
  });

  it.each([
    ["another fingerprint", { fingerprint: `sha256:${"0".repeat(64)}` }],
    ["nothing but the authorities that Node knows", {}],
  ])("is not trusted with %s, and is not told the token", async (_, trust) => {
    const options = { kind: `coppice+tls://127.0.0.1:${secured.port}`, token: TOKEN, ...trust } as const;
    await expect(connectHost(options)).rejects.toMatchObject({
      code: "HOST_CERTIFICATE_UNTRUSTED",
      faultDomain: "user",
      retryable: false,
    });
  });

  it("is not reached without TLS, nor with a wrong token", async () => {
    await expect(connectHost({ kind: `coppice://127.0.0.1:${secured.port}`, token: TOKEN })).rejects.toMatchObject({
      faultDomain: "host",
    });
    await expect(
      connectHost({
        kind: `coppice+tls://127.0.0.1:${secured.port}`,
        token: `${TOKEN}x`,
        fingerprint: fingerprint(),
      }),
    ).rejects.toMatchObject({ code: "UNAUTHENTICATED" });
  });
});

describe("a host without TLS", () => {
  it("is not taken for one that has it", async () => {
    const plain = await start("plain", []);
    await expect(
      connectHost({ kind: `coppice+tls://127.0.0.1:${plain.port}`, token: TOKEN, fingerprint: fingerprint() }),
    ).rejects.toMatchObject({ code: "HOST_UNREACHABLE" });
    await stop(plain);
  });
});
