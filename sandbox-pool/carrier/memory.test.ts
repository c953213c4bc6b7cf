import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { availableMemoryMiB, chooseMemoryMiB } from "./memory.js";

/** What the kernel says, by path. */
const files = vi.hoisted(() => new Map<string, string>());

vi.mock("node:fs", async (importOriginal) => ({
  ...(await importOriginal<typeof import("node:fs")>()),
  readFileSync: (path: string) => {
    const text = files.get(path);
    if (text === undefined) throw new Error(`ENOENT: ${path}`);
    return text;
  },
}));

function available(mib: number): void {
  files.set(
    "/proc/meminfo",
    `MemTotal:       99999999 kB\nMemFree: 1 kB\nMemAvailable:   ${mib * 1024} kB\nBuffers: 2 kB\n`,
  );
}

function limit(maximum: string, current: string): void {
  files.set("/sys/fs/cgroup/memory.max", `${maximum}\n`);
  files.set("/sys/fs/cgroup/memory.current", `${current}\n`);
}

beforeEach(() => {
  files.clear();
  vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", undefined);
});

afterEach(() => {
  vi.unstubAllEnvs();
});

describe("a carrier's memory", () => {
  it.each([
    [2_048, 2_048],
    [3_000, 2_048],
    [10_001, 5_000],
    [24_000, 12_000],
    [200_000, 16_384],
  ])("where %i MiB are available is %i MiB", (mib, chosen) => {
    available(mib);
    expect(chooseMemoryMiB()).toBe(chosen);
  });

  it("where too little is available is a typed error with both numbers", () => {
    available(2_047);
    expect(() => chooseMemoryMiB()).toThrow(expect.objectContaining({ code: "MEMORY_TOO_SMALL", faultDomain: "host" }));
    expect(() => chooseMemoryMiB()).toThrow(/2047 MiB.*2048/);
  });

  it("is what was asked for, then what the environment says, whatever is available", () => {
    available(1_000);
    vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", "768");
    expect(chooseMemoryMiB(1_024)).toBe(1_024);
    expect(chooseMemoryMiB()).toBe(768);
    vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", "");
    expect(() => chooseMemoryMiB()).toThrow(expect.objectContaining({ code: "MEMORY_TOO_SMALL" }));
  });

  it.each(["511", "0", "-2048", "2048.5", "2G", "lots", "Infinity"])("of %j is refused", (text) => {
    available(10_000);
    vi.stubEnv("COPPICE_CARRIER_MEMORY_MIB", text);
    expect(() => chooseMemoryMiB()).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT", faultDomain: "user" }));
  });
});

describe("available memory", () => {
  it("is what a container's limit leaves where that is less", () => {
    available(10_000);
    limit(`${4_096 * 1024 * 1024}`, `${1_096 * 1024 * 1024}`);
    expect(availableMemoryMiB()).toBe(3_000);
    limit(`${40_960 * 1024 * 1024}`, "0");
    expect(availableMemoryMiB()).toBe(10_000);
  });

  it("is the machine's where the container has no limit", () => {
    available(10_000);
    limit("max", "123456");
    expect(availableMemoryMiB()).toBe(10_000);
  });
});
