/** Every number of the client and its warm pool, with the reason beside it. */

const SECOND_MS = 1_000;
const MIB_BYTES = 1024 * 1024;

export const DEFAULTS = Object.freeze({
  /** Connections to a daemon. */
  connection: Object.freeze({
    /** A daemon answers a hello in microseconds, a carrier under load in tens of milliseconds. */
    connectTimeoutMs: 10 * SECOND_MS,
    /**
     * How long a host that has too many connections is asked again: longer than a daemon waits for the first word of those that
     * say nothing, after which their places are free.
     */
    fullPatienceMs: 8 * SECOND_MS,
    fullPauseMs: 500,
    /** For calls that say nothing else: the slowest of them, a fork in a busy carrier, takes under a second. */
    deadlineMs: 30 * SECOND_MS,
    /**
     * How much later than the daemon the client gives up: the daemon's own answer says more, so it gets the time to
     * arrive; without it the connection or the daemon hangs.
     */
    deadlineGraceMs: 2 * SECOND_MS,
    /** Daemon-side allowance above a guest-side limit: delivery, killing, and the last output. */
    guestGraceMs: 10 * SECOND_MS,
    /** Finds a dead remote host on an otherwise silent TCP connection: Node asks ten times, a second apart, after this. */
    keepAliveMs: 2 * SECOND_MS,
  }),
  exec: Object.freeze({
    timeoutMs: 60 * SECOND_MS,
    /** The guest's own default; the client refuses a guest that sends more than it was allowed. */
    outputLimitBytes: 16 * MIB_BYTES,
    /** With callbacks nothing is collected: 1 TiB, the agent's own limit. */
    streamLimitBytes: 2 ** 40,
    /** Output that may be on its way to a callback that has not returned: enough to keep a carrier's guest busy. */
    windowBytes: MIB_BYTES,
    /** One piece of a streamed stdin: a round trip of a carrier moves this much in the time that writing it takes. */
    stdinPieceBytes: 256 * 1024,
    /** The agent keeps a background program's output in its own memory, which is the guest's. */
    maxBackgroundBytes: 16 * MIB_BYTES,
  }),
  pty: Object.freeze({
    timeoutMs: 10 * SECOND_MS,
    quietMs: 100,
    maxBytes: MIB_BYTES,
    columns: 80,
    rows: 24,
  }),
  files: Object.freeze({
    /** Whole files are held in memory; more is a matter for `exec` with `split` or for an image. */
    readLimitBytes: 256 * MIB_BYTES,
    /** One frame of 16 MiB on every hop, less room for the envelopes around the data. */
    writeLimitBytes: 15 * MIB_BYTES,
    /** One piece of a streamed file: a round trip of a carrier takes a few milliseconds, so larger ones gain little. */
    pieceBytes: MIB_BYTES,
    /** An archive of a whole root file system takes an emulated guest some minutes. */
    archiveTimeoutMs: 3600 * SECOND_MS,
  }),
  template: Object.freeze({
    memoryMiB: 192,
    vcpus: 1,
    /** More than any task here needs, for nothing: a disk takes the space that was written. */
    diskMiB: 8 * 1024,
    /** Below this a file system has hardly any room beside its own tables. */
    minDiskMiB: 16,
    /** The daemon takes no larger disks. */
    maxDiskMiB: 256 * 1024,
    /** Debian's stock kernel panics with less. */
    minMemoryMiB: 80,
    /** The daemon takes no larger guests. */
    maxMemoryMiB: 64 * 1024,
    /** The daemon takes no more. */
    maxVcpus: 4,
    /**
     * From the end of `warmUp` to the freeze. A kernel tidies up after programs that have ended some ticks later: what it
     * does now is done once, what it still has to do is done in every fork.
     */
    settleMs: 150,
    /** An emulated host boots a stock kernel in about ten seconds, several times that when it is loaded. */
    bootTimeoutMs: 120 * SECOND_MS,
  }),
  limits: Object.freeze({
    /** More processors than any host that we know has; the daemon knows how many its own has. */
    maxCpus: 1024,
    /** The daemon's own bounds, which say why. */
    minProcesses: 100,
    maxProcesses: 4_194_304,
    minConsoleRate: 256,
    maxConsoleRate: 64 * 1024,
  }),
  fork: Object.freeze({
    /** More children than this in one call is a mistake in the caller's arithmetic on any host we know. */
    maxCount: 1024,
  }),
  /** Longest deadline that a caller may ask for: a day. Also below the 2^31 ms where timers overflow. */
  maxDeadlineMs: 24 * 3600 * SECOND_MS,
  rewind: Object.freeze({
    /** Weight of the newest in a moving average: what a way takes is known anew after a handful of rewinds. */
    newestWeight: 0.25,
    /** One rewind of so many takes another way than the quickest: often enough to notice, too rarely to be felt. */
    remeasureEvery: 32,
  }),
  pool: Object.freeze({
    /**
     * Children that wait at once, over all checkpoints. An idle child costs up to 3 MiB of host memory and one process;
     * what a search will use next is rarely more than a few groups.
     */
    maxReady: 16,
    /** Children that wait for one checkpoint: a group of eight is the common fan-out. */
    maxReadyPerCheckpoint: 8,
    /**
     * Sandboxes alive through one pool, waiting ones included. The host has limits of its own; this one keeps a mistake in
     * one client from taking all of a host's processes.
     */
    maxLive: 1024,
    /** The host keeps at least this much available memory; below it nothing is forked ahead. */
    minAvailableBytes: 256 * MIB_BYTES,
    /** How long one reading of the host's memory is believed. */
    memoryReadingMs: SECOND_MS,
    /** Half-life of demand: the work of a search node is over in a few seconds, and with it the interest in its checkpoint. */
    demandHalfLifeMs: 5 * SECOND_MS,
    /**
     * One child is kept for so much demand; an acquire counts 1 and halves each half-life. At 2, a steady acquire in 7 s
     * keeps none, one a second keeps three. A lone fork, the usual case in tree search, must not make the host fork for nobody.
     */
    demandPerChild: 2,
    /** Refill starts when fewer than this part of the target waits, and goes on to the target: the hysteresis. */
    lowWatermark: 0.5,
    /** Waiting children above this many times the target are closed. */
    highWatermark: 1.5,
    /**
     * Nothing is forked ahead while more calls than this are in flight. A carrier has one emulated CPU: a fork ahead takes
     * tens of milliseconds of it from the work that somebody waits for now.
     */
    maxInFlight: 1,
    /**
     * How long a refill waits after a hand-out: a child's first answer comes within this, and would take twice as long
     * beside the making of the next child.
     */
    refillDelayMs: 15,
    /** Children forked ahead by one call: few, so that a refill yields to work that arrives meanwhile. */
    refillBatch: 2,
    /** How often targets are compared with what waits when nothing happens: only decay needs it. */
    tickMs: 500,
    /** A checkpoint whose fork ahead failed is left alone for this long. */
    failureBackoffMs: 5 * SECOND_MS,
    /** Durations kept for statistics. */
    latencySamples: 1024,
  }),
});
