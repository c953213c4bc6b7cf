import { expect, it } from "vitest";

import type { Pty, Sandbox, Template } from "../../../sandbox-pool/index.js";
import { CoppiceError } from "../../../sandbox-pool/index.js";
import { Shell } from "./shell.js";

it("a shell whose host ends says so and ends, also where nobody types", async () => {
  const pty: Partial<Pty> = { attach: () => new Promise(() => undefined) };
  const sandbox = { openPty: async () => pty, pty: () => pty, close: async () => undefined };
  const shell = new Shell({
    template: {} as Template,
    argv: ["sh"],
    user: undefined,
    term: "dumb",
    write: () => undefined,
    size: () => ({ columns: 80, rows: 24 }),
    exitCode: () => 0,
  });
  const running = shell.run(sandbox as unknown as Sandbox);
  shell.hostEnded(new CoppiceError("stopped", { code: "HOST_LOST", faultDomain: "host", remedy: "" }));
  await expect(running).rejects.toMatchObject({
    code: "HOST_LOST",
    message: "The host of this shell has ended, and all its sandboxes with it: stopped",
  });
  await shell.close();
});
