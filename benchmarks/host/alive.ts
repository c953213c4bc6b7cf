/** How many children are alive at once, and what they take. */

import { connectHost, type Sandbox } from "../../index.js";
import { warmTemplate } from "./measure.js";
import { ONCE, type Scenario } from "./scenario.js";

const CHILDREN = 200;
const BATCH = 8;

export const alive: Scenario = {
  names: ["children.alive", "memory.alive.perChild"],
  about: `${CHILDREN} children at once, each answering when the last is there, or as many as the host admits; once a run`,
  every: ONCE,
  run: async (bench) => {
    const { id } = await warmTemplate(bench);
    await using all = await connectHost({ join: bench.host.address, pool: { maxReady: 0, maxLive: 2 * CHILDREN } });
    const template = all.checkpoints.get(id);
    const available = async (): Promise<number> => (await all.stats()).memory.availableBytes;
    const before = await available();
    const children: Sandbox[] = [];
    let isFull = false;
    while (children.length < CHILDREN && !isFull) {
      bench.signal.throwIfAborted();
      for (const child of await template.fork(Math.min(BATCH, CHILDREN - children.length))) {
        if (child.ok) children.push(child.sandbox);
        else if ((child.error as { code?: string }).code === "HOST_FULL") isFull = true;
        else throw child.error;
      }
    }
    for (const child of children) await child.ping();
    bench.record("children.alive", children.length);
    bench.record("memory.alive.perChild", (before - (await available())) / children.length);
    await Promise.all(children.map((child) => child.close()));
  },
};
