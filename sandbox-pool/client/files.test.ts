import { describe, expect, it } from "vitest";

import type { AgentCall } from "./agent-call.js";
import { createFiles } from "./files.js";
import { expectMessage } from "./messages.js";

describe("stat of a file", () => {
  it.each([1.5, Number.NaN, "1"])("with the time %j, which no guest of ours gives, is a violation", async (mtimeNs) => {
    const result = { kind: "file", size: 1, mode: 0o644, mtimeNs };
    const agent: AgentCall = async ({ op, schema }) => ({
      result: expectMessage(schema, result, op),
      stages: [],
      chunks: [],
    });
    await expect(createFiles(agent).stat("/srv/a")).rejects.toMatchObject({ code: "PROTOCOL_VIOLATION" });
  });
});
