/** Every number of the carrier, with the reason beside it. */

const SECOND_MS = 1_000;

export const DEFAULTS = Object.freeze({
  /** Port that the daemon listens on inside. */
  guestPort: 7000,
  /** The stock kernel and the daemon need about 150 MiB; a template of the default size and its children the rest. */
  minMemoryMiB: 2048,
  /** Thousands of idle children; more is a matter for a machine with KVM. */
  maxMemoryMiB: 16 * 1024,
  /** Of what is available at the start: the rest is for the engine and for whatever else runs. Only what is used is taken. */
  memoryShare: 0.5,
  /** Long enough for a person who runs one command after the other. */
  idleSeconds: 60,
  /** Five seconds on an idle machine; slow and busy ones take many times that. */
  bootTimeoutMs: 120 * SECOND_MS,
  /** How often the console is looked at meanwhile. */
  retryMs: 50,
  /** A running carrier that is busy on its one CPU still answers in less. */
  answerTimeoutMs: 15 * SECOND_MS,
  /** The keeper ends QEMU within 1.5 s. */
  endTimeoutMs: 3 * SECOND_MS,
  /** Whoever is interrupted must be gone in 5 s: it does not wait long for another process that starts a carrier. */
  releaseLockMs: 1_000,
  qmpTimeoutMs: 10 * SECOND_MS,
  consoleLimitBytes: 2 * 1024 * 1024,
  /** Lines of console in an error. */
  consoleTailLines: 25,
  /** Another program may take the free port between our looking and QEMU's binding. */
  portAttempts: 5,
  /** virtio-blk's own limit of a serial. */
  serialChars: 20,
});
