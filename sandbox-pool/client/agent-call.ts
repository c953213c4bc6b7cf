/** Calls of the agent in a guest, however the sandbox is reached. */

import type { CallSpec } from "./connection.js";
import type { Answer, Request } from "./session.js";

/** One call of the guest's agent, in a sandbox that must be usable. */
export type AgentCall = <T>(
  call: Pick<Request<T>, "schema"> & { readonly op: string; readonly args: object; readonly spec?: CallSpec },
) => Promise<Answer<T>>;
