import type { CallOptions, Stages } from "../api.js";

export type ForkedChild =
  | { readonly ok: true; readonly sandbox: string; readonly stages: Stages }
  | { readonly ok: false; readonly error: Error };

export interface ChildOptions extends CallOptions {
  readonly keepRandomness?: boolean;
  /** The caller gives up a child of the pool for the one that it gets. */
  readonly isReplacement?: boolean;
}

/** What the warm pool needs of a host: sandboxes by id, nothing else. */
export interface ForkSource {
  /** Children that are ready to be used, one result a child. */
  fork(checkpoint: string, count: number, options: ChildOptions): Promise<readonly ForkedChild[]>;
  /** Children that have run to idle and wait, stopped, for `lease`. */
  forkAhead(checkpoint: string, count: number): Promise<readonly ForkedChild[]>;
  /**
   * Hands out a waiting child, which has had its identity since it ran ahead: runs it, with the right clock. Whatever the
   * child is asked after this call goes behind it. Rejects where that failed: the child has then said nothing, and does not
   * live on.
   */
  lease(sandbox: string): Promise<Stages>;
  /** Twice is a no-op. */
  close(sandbox: string): Promise<void>;
  /** Calls that the host works on at present. */
  inFlight(): number;
  /** Memory that the host could still give. */
  availableBytes(): Promise<number>;
}
