/** What a sandbox's handle stands for between two rewinds. */

import type { Stages } from "../api.js";
import type { Lease } from "../pool/warm-pool.js";

export interface Life {
  readonly id: string;
  readonly stages: Stages;
  /** See `Lease.begun`. */
  readonly begun?: Promise<Stages> | undefined;
  /** Checkpoint that it began with; not known of a sandbox that was booted, or forked through another connection. */
  readonly origin?: string | undefined;
  /** Called once, when the sandbox has been closed or has become a checkpoint: whoever counts it can stop. */
  readonly onGone?: (() => void) | undefined;
}

export function toLife(origin: string, lease: Lease): Life {
  const { sandbox: id, stages, begun } = lease;
  return { id, stages, begun, origin, onGone: () => lease.detach() };
}
