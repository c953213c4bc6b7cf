/** Every number of the carrier, with the reason beside it. */

export const DEFAULTS = Object.freeze({
  /** Port that the daemon listens on inside. */
  guestPort: 7000,
  /** The stock kernel and the daemon need about 150 MiB; a template of the default size and its children the rest. */
  minMemoryMiB: 2048,
  /** Thousands of idle children; more is a matter for a machine with KVM. */
  maxMemoryMiB: 16 * 1024,
  /** Below this not even one sandbox of the default size has room. */
  leastMemoryMiB: 512,
  /** Of what is available at the start: the rest is for the engine and for whatever else runs. Only what is used is taken. */
  memoryShare: 0.5,
  qmpTimeoutMs: 10_000,
  /** virtio-blk's own limit of a serial. */
  serialChars: 20,
});
