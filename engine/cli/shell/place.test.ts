import { describe, expect, it } from "vitest";

import { CoppiceError, type Pty, type PtyExit, type Sandbox } from "../../../sandbox-pool/index.js";
import { Place } from "./place.js";

const SIZE = { columns: 80, rows: 24 };

/** A place whose terminal is played by the test. */
function makePlace(rewind: () => Promise<void>) {
  const seen: string[] = [];
  const attached: {
    print: (text: string) => void;
    end: (exit: PtyExit) => void;
  }[] = [];
  const pty: Partial<Pty> = {
    attach: ({ onOutput }) =>
      new Promise((end) => attached.push({ print: (text) => onOutput(Buffer.from(text)), end })),
  };
  const sandbox = { openPty: async () => pty, pty: () => pty, rewind };
  const place = new Place({
    name: "1",
    sandbox: sandbox as unknown as Sandbox,
    mark: undefined,
    argv: ["sh"],
    term: "dumb",
    user: undefined,
    events: {
      onOutput: (_, piece) => seen.push(Buffer.from(piece).toString()),
      onEnd: (_, end) => seen.push("code" in end ? end.code : `exit ${end.exitCode}`),
    },
  });
  return { place, seen, attached };
}

const refused = (): Promise<never> =>
  Promise.reject(new CoppiceError("full", { code: "HOST_FULL", faultDomain: "host", remedy: "" }));

describe("a place whose rewind fails", () => {
  it("goes on showing what the life before prints", async () => {
    const { place, seen, attached } = makePlace(refused);
    await place.begin(SIZE);
    await expect(place.rewind(SIZE)).rejects.toThrow("full");
    attached[0]?.print("still here");
    expect(seen).toEqual(["still here"]);
  });

  it("says now how its program ended meanwhile", async () => {
    const parts = makePlace(async () => {
      parts.attached[0]?.end({ exitCode: 3, signal: null });
      await new Promise((resolve) => setImmediate(resolve));
      await refused();
    });
    await parts.place.begin(SIZE);
    await expect(parts.place.rewind(SIZE)).rejects.toThrow("full");
    expect(parts.seen).toEqual(["exit 3"]);
    expect(parts.place.hasEnded).toBe(true);
  });
});
