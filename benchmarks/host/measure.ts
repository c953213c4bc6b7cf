/** What several scenarios do in the same way. */

import type { Sandbox, Template, TemplateOptions } from "../../index.js";
import type { Bench } from "./scenario.js";

/** Of the usual guest. */
export const MEMORY_MIB = 192;

const READY_POLL_MS = 10;
const READY_WAIT_MS = 10_000;

/** `sizes`: other than the usual guest, which has 192 MiB and the usual disk. */
export async function warmTemplate(
  { host, image, signal }: Bench,
  sizes: Pick<TemplateOptions, "memoryMiB" | "diskMiB"> = {},
): Promise<Template> {
  return await host.templates.create(image, {
    memoryMiB: MEMORY_MIB,
    ...sizes,
    key: "benchmarks/host 1",
    warmUp: async (sandbox) => {
      // What every child will do is done once before, as a user of a template would.
      for (let round = 0; round < 2; round++) await sandbox.exec(["/bin/true"]);
    },
    signal,
  });
}

export async function timed<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly microseconds: number }> {
  const begin = performance.now();
  const result = await work();
  return { result, microseconds: (performance.now() - begin) * 1_000 };
}

async function pause(milliseconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Until a child waits and none is being made. */
export async function settle({ host, signal }: Bench, template: Template): Promise<void> {
  const deadline = performance.now() + READY_WAIT_MS;
  host.pool.forecast(template.id, 2);
  for (;;) {
    signal.throwIfAborted();
    if (host.pool.ready(template.id) > 0 && host.pool.stats().preparing === 0) return;
    if (performance.now() > deadline) throw new Error(`no child was forked ahead within ${READY_WAIT_MS} ms`);
    await pause(READY_POLL_MS);
  }
}

export async function firstReply(
  make: () => Promise<Sandbox>,
): Promise<{ readonly sandbox: Sandbox; readonly microseconds: number }> {
  const { result: sandbox, microseconds } = await timed(async () => {
    const made = await make();
    await made.ping();
    return made;
  });
  return { sandbox, microseconds };
}
