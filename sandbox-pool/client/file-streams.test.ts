import { createReadStream } from "node:fs";
import { Readable } from "node:stream";

import { describe, expect, it } from "vitest";

import type { AgentCall } from "./agent-call.js";
import { extractPieces, writePieces } from "./file-streams.js";

/** What one call of an agent is, without the type of its result. */
type Call = Parameters<AgentCall>[0];

/** An agent whose answers the test gives. */
function fakeAgent(answer: (call: Call) => unknown): { readonly agent: AgentCall; readonly ops: string[] } {
  const ops: string[] = [];
  const agent = async (call: Call) => {
    ops.push(call.op);
    return { result: await answer(call), stages: [], chunks: [] };
  };
  return { agent: agent as unknown as AgentCall, ops };
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

describe("a file written from a stream", () => {
  it("that can't be opened fails with the stream's error, and the guest forgets the upload", async () => {
    const { agent, ops } = fakeAgent(async ({ op }) => {
      await nextTurn();
      return op === "upload.begin" ? { upload: 1 } : {};
    });
    const source = createReadStream("/nowhere/at/all");
    await expect(writePieces(agent, "/srv/a", source, {})).rejects.toMatchObject({ code: "ENOENT" });
    expect(ops).toEqual(["upload.begin", "upload.abort"]);
  });

  it("that the guest refuses lets go of the stream", async () => {
    const { agent } = fakeAgent(() => Promise.reject(new Error("refused")));
    const source = new Readable({ read: () => undefined });
    await expect(writePieces(agent, "/srv/a", source, {})).rejects.toThrow("refused");
    expect(source.destroyed).toBe(true);
  });

  it("keeps the order of its pieces", async () => {
    const written: Uint8Array[] = [];
    const { agent, ops } = fakeAgent(({ op, args }) => {
      if (op === "upload.write") written.push((args as { data: Uint8Array }).data);
      return { upload: 1 };
    });
    await writePieces(agent, "/srv/a", Readable.from([Buffer.from("a"), Buffer.from("b"), Buffer.from("c")]), {});
    expect(Buffer.concat(written).toString()).toBe("abc");
    expect(ops.at(-1)).toBe("upload.commit");
  });

  it("is begun by a request that stays open until the upload has ended, so that its end is known in the guest", async () => {
    let end: (result: unknown) => void = () => undefined;
    const { agent, ops } = fakeAgent(({ op, args, spec }) => {
      if (op === "upload.commit") end({ upload: 3 });
      if (op !== "upload.begin") return { upload: (args as { upload: number }).upload };
      spec?.onChunk?.({ stream: "started", data: Buffer.from("3") });
      return new Promise((resolve) => {
        end = resolve;
      });
    });
    await writePieces(agent, "/srv/a", Readable.from([Buffer.from("a")]), {});
    expect(ops).toEqual(["upload.begin", "upload.write", "upload.commit"]);
  });

  it("that the guest does not begin in time is given up", async () => {
    let given: AbortSignal | undefined;
    const { agent } = fakeAgent(({ spec }) => {
      given = spec?.signal;
      return new Promise((_, reject) => given?.addEventListener("abort", () => reject(new Error("aborted"))));
    });
    const writing = writePieces(agent, "/srv/a", Readable.from([]), { deadlineMs: 10 });
    await expect(writing).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
    expect(given?.aborted).toBe(true);
  });
});

describe("an archive that is unpacked from a stream", () => {
  it("lets go of the stream where the guest refuses the directory", async () => {
    const { agent } = fakeAgent(() => Promise.reject(new Error("refused")));
    const source = new Readable({ read: () => undefined });
    await expect(extractPieces(agent, "/srv", source, {})).rejects.toThrow("refused");
    expect(source.destroyed).toBe(true);
  });
});
