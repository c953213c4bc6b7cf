/** States of a sandbox handle, and the one function that moves between them. */

import { internalError } from "../remedies.js";

/**
 * - `live`: usable.
 * - `parking`: on its way to becoming a checkpoint; nothing else is accepted.
 * - `rewinding`: another life is on its way; nothing else is accepted.
 * - `parked`: has become a checkpoint. Final.
 * - `poisoned`: something failed in a way that may have damaged it: it can only be rewound or closed.
 * - `ended`: the guest has ended its VM, or the VM died: console, rewind and close still work.
 * - `closed`: final.
 */
export type SandboxState = "live" | "parking" | "rewinding" | "parked" | "poisoned" | "ended" | "closed";

const TRANSITIONS: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  live: ["parking", "rewinding", "poisoned", "ended", "closed"],
  parking: ["live", "parked", "poisoned", "ended", "closed"],
  // Back to where it was where no life could be begun.
  rewinding: ["live", "poisoned", "ended", "closed"],
  parked: [],
  poisoned: ["rewinding", "ended", "closed"],
  ended: ["rewinding", "closed"],
  closed: [],
};

export function mayMove(from: SandboxState, to: SandboxState): boolean {
  return TRANSITIONS[from].includes(to);
}

/** `to`, where the table allows it. Throws `INTERNAL` for a pair that it does not. */
export function moveSandbox(from: SandboxState, to: SandboxState): SandboxState {
  if (!mayMove(from, to)) {
    throw internalError(`Sandbox handle can't go from ${from} to ${to}`);
  }
  return to;
}
