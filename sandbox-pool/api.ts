/**
 * What a host of sandboxes offers, as interfaces: the engine is written against these, the client in `client/` implements
 * them for a real daemon, and tests bring stand-ins.
 */

import type { CoppiceError } from "./errors.js";
import type { CallOptions, Guest } from "./guest-api.js";

export type * from "./guest-api.js";

/** Microseconds of each stage of an operation, in order. */
export type Stages = readonly (readonly [name: string, microseconds: number])[];

/** A root file system to boot from. */
export interface ImageSpec {
  readonly debian: {
    /** Debian packages on top of the minimal system. */
    readonly packages?: readonly string[];
    /** Debian release. Default: `bookworm`. */
    readonly suite?: string;
  };
  /** Files to add: absolute guest path to contents. */
  readonly files?: Readonly<Record<string, string | Uint8Array>>;
}

export interface Image {
  /** `sha256:…` of what the image was built from. */
  readonly id: string;
}

/** What a sandbox may take of its host. What is left out is bounded by the host alone. */
export interface Limits {
  /**
   * Memory in MiB that it may add to what its checkpoint has. Who takes more loses the sandbox: `SANDBOX_LOST`, fault domain
   * `guest`. At least 8.
   */
  readonly memoryMiB?: number;
  /** Weight when several sandboxes want the processors, 1 to 10,000; 100 is the usual one. */
  readonly cpuShare?: number;
  /** Processors that it may keep busy, such as 0.5, also where nobody else wants them. Needs cgroups (`host.info.limits`). */
  readonly cpuMax?: number;
}

/** Those of a template's guest too, which it has from its boot on. */
export interface TemplateLimits extends Limits {
  /** Processes and threads in the guest, those of its kernel (about 50) included; its kernel refuses more. At least 100. */
  readonly processes?: number;
  /** What is kept of its console in a second, in bytes; more is dropped, with a mark. Default 65,536, which is the most. */
  readonly consoleBytesPerSecond?: number;
}

export interface TemplateOptions extends CallOptions {
  /** Guest memory in MiB. Default 192. */
  readonly memoryMiB?: number;
  /** 1 to 4. Default 1, with which everything is quickest; more serve guests that compute in parallel. */
  readonly vcpus?: number;
  /**
   * Size of the writable disk above the image, in MiB. It takes the space that was written, on the host's disk, and forks
   * with the memory. Default 8,192. 0: none; what the guest writes lies in its memory, of which it may fill half.
   */
  readonly diskMiB?: number;
  /**
   * Of the guest, and of everything that is forked from it, at any depth. A limit on memory is none on the template itself,
   * which `memoryMiB` bounds.
   */
  readonly limits?: TemplateLimits;
  /** Runs once in the booted guest, before it is frozen. */
  readonly warmUp?: (sandbox: Sandbox) => Promise<void>;
  /**
   * Names what `warmUp` does. Templates with equal image, size and key are made once a host and shared, also between
   * processes. Absent: the template belongs to this client alone.
   */
  readonly key?: string;
  readonly onProgress?: (message: string) => void;
}

export interface ForkOptions extends CallOptions {
  /** Keep the checkpoint's kernel randomness, for reproducible research. Default false: each child is reseeded. */
  readonly keepRandomness?: boolean;
  /** In place of the checkpoint's. They hold when the fork is there. */
  readonly limits?: Limits;
}

/** It begins with the limits of the checkpoint. */
export interface RewindOptions extends Omit<ForkOptions, "limits"> {
  /** Default: the checkpoint that the sandbox was forked from, or put back to last. */
  readonly to?: Checkpoint;
  /**
   * Default `measured`: whatever has taken the least time at this checkpoint. `in-place` where that is possible: not from
   * another checkpoint than it came from, nor where the guest has ended or may be damaged, nor after `limit()`, nor in a
   * life that began before the first rewind to the checkpoint.
   */
  readonly prefer?: "measured" | "in-place" | "fork";
}

/**
 * - `in-place`: the same process and VM went back: what it had written was put back.
 * - `warm-fork`: a child that had waited in the warm pool took its place.
 * - `cold-fork`: a child that was made for it took its place.
 */
export type RewindHow = "in-place" | "warm-fork" | "cold-fork";

export interface RewindResult {
  readonly how: RewindHow;
  /** Pages of 4 KiB that were put back; only `in-place`. */
  readonly dirtyPages?: number;
}

export type ForkResult =
  | { readonly ok: true; readonly sandbox: Sandbox }
  | { readonly ok: false; readonly error: Error };

/** Runs as first and length, ascending. */
export interface Delta {
  /** Id of the checkpoint that it was compared with. */
  readonly parent: string;
  /** Pages of 4 KiB whose contents differ, by guest-physical address / 4096. */
  readonly pages: readonly (readonly [first: number, length: number])[];
  /** Blocks of 4 KiB of the disk that were written since, or discarded. */
  readonly blocks: readonly (readonly [first: number, length: number])[];
}

export interface Checkpoint extends AsyncDisposable {
  readonly id: string;
  /** 4 KiB guest pages that differ from the template's base. */
  readonly dirtyPages: number;
  /** 4 KiB blocks of the disk that were written since the template; 0 on a handle that was made otherwise. */
  readonly dirtyBlocks: number;
  /** Stages of the park or checkpoint that made it; empty on a handle that was made otherwise. */
  readonly stages: Stages;
  /**
   * In what it differs from the checkpoint that its sandbox came from, which must not be released. It is found out when it is
   * asked for, in time that both have written; meanwhile neither is forked.
   */
  delta(options?: CallOptions): Promise<Delta>;
  /** One running sandbox in this state; a pooled one where the warm pool has it. */
  fork(options?: ForkOptions): Promise<Sandbox>;
  /** `count` sandboxes, one result a child. */
  fork(count: number, options?: ForkOptions): Promise<readonly ForkResult[]>;
  /** Drops it; sandboxes that were forked from it live on. Twice is a no-op. */
  release(): Promise<void>;
}

/** The root of a checkpoint tree: an image booted, warmed up and frozen. */
export type Template = Checkpoint;

/** One running microVM, owned by this client. */
export interface Sandbox extends Guest, AsyncDisposable {
  /** Stages of the fork, lease or rewind that began its present life; of a child that had waited, from its first answer on. */
  readonly stages: Stages;
  /**
   * Other limits from now on, in place of all that it had; what is made of it from now on has them too. Throws
   * `LIMIT_UNSUPPORTED` where the host has no means for one.
   */
  limit(limits: Limits, options?: CallOptions): Promise<void>;
  /** The sandbox becomes the checkpoint; it can not be used any more. */
  park(options?: CallOptions & { readonly name?: string }): Promise<Checkpoint>;
  /**
   * A checkpoint of this moment; the sandbox goes on, and so do its calls. In forks of the checkpoint the programs of such
   * calls run too, and nobody waits for them. Cheaper than this is `park`, for a sandbox that need not go on. In a template's
   * `warmUp` it is refused with `VMM_WRONG_STATE`: what was booted has to be parked once.
   */
  checkpoint(options?: CallOptions & { readonly name?: string }): Promise<Checkpoint>;
  /**
   * Puts it back to a checkpoint, whatever has become of it since: also where its guest has ended or it may be damaged. It
   * is a new life, with randomness and a machine id of its own, and what was under way fails with `SANDBOX_CLOSED`; its name
   * changes where another sandbox takes its place. Where no life can be had it rejects, and the sandbox stays as it was. One
   * that is aborted or out of time on its way back in place is in no known state: rewind it again, or close it. A child that
   * had waited and can't go on says so at its first use, as with `fork`: rewind it again.
   */
  rewind(options?: RewindOptions): Promise<RewindResult>;
  /** The serial console's last 64 KiB; of a guest that has ended the last 2 KiB. */
  console(options?: CallOptions): Promise<string>;
  /** Twice is a no-op. */
  close(): Promise<void>;
}

export interface HostInfo {
  readonly kind: "kvm" | "carrier";
  readonly version: string;
  readonly memoryBytes: number;
  readonly cpus: number;
  /** By what the host holds sandboxes to their limits. */
  readonly limits: {
    readonly memory: "cgroup2" | "measured";
    readonly cpuShare: "cgroup2" | "nice" | "none";
    readonly cpuMax: "cgroup2" | "none";
    /** Why there are no cgroups. */
    readonly reason?: string | undefined;
  };
}

export interface HostStats {
  readonly sandboxes: {
    readonly booting: number;
    readonly ready: number;
    readonly leased: number;
    readonly poisoned: number;
  };
  readonly checkpoints: { readonly hot: number; readonly shared: number };
  readonly sessions: number;
  readonly memory: { readonly totalBytes: number; readonly availableBytes: number };
  /** Where the contents of disks go. */
  readonly disk: { readonly totalBytes: number; readonly availableBytes: number };
  /** Of sandboxes that have limits; others have none. */
  readonly cgroups: number;
  readonly counters: Readonly<
    Record<
      | "forks"
      | "parks"
      | "checkpoints"
      | "rewinds"
      | "boots"
      | "closes"
      | "discarded"
      | "memoryLimitKills"
      | "consoleDroppedBytes",
      number
    >
  >;
}

/** Whose something on a host is: enough to tell owners apart, not enough to act for them. */
export interface Owner {
  /** The first characters of its session's id. */
  readonly session: string;
  /** What the client that began the session called itself. */
  readonly client: string;
}

export interface MemoryUsage {
  /** Guest memory that no other process maps. */
  readonly privateBytes: number;
  /** Everything that the process adds to the host, but for its disk. */
  readonly totalBytes: number;
  /** What the files of its disk take, also those that it shares with ancestors and siblings. */
  readonly diskBytes: number;
}

export interface SandboxRow {
  readonly id: string;
  readonly owner: Owner;
  readonly state: "booting" | "ready" | "leased" | "poisoned";
  /** Checkpoint that it was forked from; null where it was booted. */
  readonly checkpoint: string | null;
  readonly ageMs: number;
  /** null where it was not asked for, or the process ended meanwhile. */
  readonly memory: MemoryUsage | null;
}

export interface CheckpointRow {
  readonly id: string;
  /** null: shared by all sessions. */
  readonly owner: Owner | null;
  readonly name: string | null;
  /** null where it was made from a sandbox that was booted. */
  readonly parent: string | null;
  readonly dirtyPages: number;
  /** Sandboxes and checkpoints that were made from it and live. */
  readonly children: number;
  readonly ageMs: number;
  readonly memory: MemoryUsage | null;
}

/** What the sessions of a host hold. */
export interface HostInventory {
  readonly sandboxes: readonly SandboxRow[];
  readonly checkpoints: readonly CheckpointRow[];
}

/** Each option's default and reason: `DEFAULTS.pool` in `sandbox-pool/defaults.ts`. */
export interface WarmPoolOptions {
  /** Children that wait at once, over all checkpoints. 0 forks nothing ahead. */
  readonly maxReady?: number;
  readonly maxReadyPerCheckpoint?: number;
  /** Sandboxes alive through this pool at once; who comes later waits, up to the call's deadline. */
  readonly maxLive?: number;
  /** Nothing is forked ahead while the host has less available memory. */
  readonly minAvailableBytes?: number;
  /** How long one reading of the host's memory is believed. */
  readonly memoryReadingMs?: number;
  readonly demandHalfLifeMs?: number;
  /** Demand for which one child is kept waiting. */
  readonly demandPerChild?: number;
  /** A refill starts when fewer than this part of the target waits. */
  readonly lowWatermark?: number;
  /** Waiting children above this many times the target are closed. */
  readonly highWatermark?: number;
  /** Nothing is forked ahead while more calls than this are in flight on the connection. */
  readonly maxInFlight?: number;
  /** How long a refill waits after a child was handed out. */
  readonly refillDelayMs?: number;
  /** Children forked ahead by one call. */
  readonly refillBatch?: number;
  /** How often decay is looked at. */
  readonly tickMs?: number;
  readonly failureBackoffMs?: number;
  /** Durations kept for statistics. */
  readonly latencySamples?: number;
}

export interface PoolStats {
  /** Forks that were served by a waiting child, and those that were not. */
  readonly hits: number;
  readonly misses: number;
  /** Waiting children that failed when they were handed out. */
  readonly discards: number;
  readonly forkedAhead: number;
  /** Waiting children that were closed because nobody was expected to want them, or to make room. */
  readonly evicted: number;
  /** Late and double releases: they did nothing. */
  readonly staleReleases: number;
  /** Forks and closes that failed. */
  readonly failures: number;
  /** Children that exist or are being made: ready, preparing, leased, and those on their way in or out. */
  readonly live: number;
  readonly ready: number;
  readonly preparing: number;
  readonly leased: number;
  /** Forks that wait for room. */
  readonly waiting: number;
  /** The last durations from the call of fork to the sandbox, in no particular order. */
  readonly warmMicroseconds: readonly number[];
  readonly coldMicroseconds: readonly number[];
}

/** Children forked ahead by this client, so that `checkpoint.fork()` need not wait for one to be made. */
export interface Pool {
  /** How many forks of the checkpoint will soon be asked for, 0 or more; replaces the last forecast, and fades by itself. */
  forecast(checkpointId: string, weight: number): void;
  /** Children that wait for a fork of the checkpoint. */
  ready(checkpointId: string): number;
  stats(): PoolStats;
}

/** Whom to take for the host. Nothing given: whom the certificate authorities of Node vouch for. */
export interface TlsTrust {
  /** `sha256:` and the digest of the host's certificate. */
  readonly fingerprint?: string;
  /** Certificates, PEM, one of which has signed the host's. */
  readonly ca?: string;
}

/** What another process or thread needs to join this client's session. Holds a secret: keep it out of logs. */
export interface HostAddress {
  readonly kind: "kvm" | "carrier";
  readonly endpoint:
    | { readonly unix: string }
    | { readonly host: string; readonly port: number; readonly tls?: TlsTrust };
  readonly token?: string;
  readonly session: string;
}

export interface Host extends AsyncDisposable {
  readonly info: HostInfo;
  /** For `connectHost({ join: address })` elsewhere: handles that are made there are owned by the same session. */
  readonly address: HostAddress;
  readonly images: {
    /** Builds, or finds in the cache, and makes known to the host. */
    build(spec: ImageSpec, options?: CallOptions & { readonly onProgress?: (message: string) => void }): Promise<Image>;
  };
  readonly templates: {
    create(image: Image, options?: TemplateOptions): Promise<Template>;
  };
  readonly checkpoints: {
    /** A handle on a checkpoint of this session that was made through another connection. */
    get(id: string, dirtyPages?: number): Checkpoint;
  };
  readonly sandboxes: {
    /**
     * A handle on a running sandbox of this session that was forked through another connection. Use it from one thread at
     * a time; the handle that it was forked with learns nothing of a park or close here.
     */
    get(id: string): Sandbox;
  };
  readonly guests: {
    /**
     * The guest of a running sandbox of any session of this host, to look into it or to help. It belongs to its owner all the
     * same: who may forget it at any time, and may be using it.
     */
    get(id: string): Guest;
  };
  readonly pool: Pool;
  /** Resolves when the connection has ended, with the reason: `HOST_CLOSED` after `close()`, else what was lost. Never rejects. */
  readonly ended: Promise<CoppiceError>;
  /** The sandboxes and checkpoints of all sessions. `memory`: with what each takes, which costs the host some milliseconds for each. */
  inventory(options?: CallOptions & { readonly memory?: boolean }): Promise<HostInventory>;
  stats(options?: CallOptions): Promise<HostStats>;
  /** Figures for a monitoring system, in Prometheus' text format; `docs/metrics.md` explains each. */
  metrics(options?: CallOptions): Promise<string>;
  /**
   * Private guest memory of one sandbox or checkpoint, and all memory that its process adds to the host, in bytes.
   * `diskBytes`: what the files of its disk take, its own and those that it shares with ancestors and siblings.
   */
  memoryUsage(
    of: { readonly sandbox: string } | { readonly checkpoint: string },
    options?: CallOptions,
  ): Promise<MemoryUsage>;
  /**
   * Ends this connection. When it is the last of its session, whatever the session still owns is closed.
   */
  close(options?: HostCloseOptions): Promise<void>;
}

export interface HostCloseOptions {
  /**
   * End the host process too, where this client's machine runs it, no other session uses it, and nobody has started it on purpose
   * (`coppice host start`). Default false: a carrier that nobody uses ends by itself after a while, and until then the next
   * start is quick.
   */
  readonly stopHostIfUnused?: boolean;
}

/** Builds image files, and finds them in its cache. */
export type ImageBuilder = (
  spec: ImageSpec,
  options: CallOptions & { readonly onProgress?: (message: string) => void },
) => Promise<{
  readonly id: string;
  readonly path: string;
}>;

export interface ConnectOptions {
  /**
   * `auto`: the host named by `COPPICE_HOST`, else a local daemon where KVM can run Linux guests, else a carrier. `kvm`,
   * `carrier`: this one or an error. `coppice+tls://host:port`: a running daemon; `coppice://host:port`: one on this machine,
   * or behind a tunnel. Default `auto`.
   */
  readonly kind?: "auto" | "kvm" | "carrier" | `coppice://${string}` | `coppice+tls://${string}`;
  /** For a running daemon. Default: `COPPICE_TOKEN`. */
  readonly token?: string;
  /**
   * For `coppice+tls://…`: the host's certificate is the one with this SHA-256 digest, which coppiced prints when it starts
   * (`sha256:…`), whoever signed it. Default: `COPPICE_FINGERPRINT`.
   */
  readonly fingerprint?: string;
  /**
   * For `coppice+tls://…`: certificates, PEM, that vouch for the host's, which must be made out to the name or address in
   * `kind`. Default: the file that `COPPICE_CA` names, else those that Node has.
   */
  readonly ca?: string;
  /** Let `coppice://…` send the token over a network without TLS. Default: whether `COPPICE_ALLOW_PLAINTEXT` is `1`. */
  readonly allowPlaintext?: boolean;
  /** Joins the session of another connection; `kind` and `token` must be absent. */
  readonly join?: HostAddress;
  readonly signal?: AbortSignal;
  /** What is being done, for people: finding, building, starting a host may take minutes the first time. */
  readonly onProgress?: (message: string) => void;
  readonly pool?: WarmPoolOptions;
  /** Replaces the image builder, for images that are made elsewhere. */
  readonly imageBuilder?: ImageBuilder;
}
