/** Every number about keeping hosts, with the reason beside it. */

const SECOND_MS = 1_000;

export const DEFAULTS = Object.freeze({
  /** Long enough for a person who runs one command after the other. */
  idleSeconds: 60,
  /** An emulated host boots in five seconds on an idle machine; slow and busy ones take many times that. */
  bootTimeoutMs: 120 * SECOND_MS,
  /** How often the console is looked at meanwhile. */
  pollMs: 50,
  /** A running host that is busy on its one emulated CPU still answers in less. */
  answerTimeoutMs: 15 * SECOND_MS,
  /** The keeper ends its program within 1.5 s. */
  endTimeoutMs: 3 * SECOND_MS,
  /** Whoever is interrupted must be gone in 5 s: it does not wait long for another process that starts a host. */
  releaseLockMs: SECOND_MS,
  consoleLimitBytes: 2 * 1024 * 1024,
  /** Lines of console in an error. */
  consoleTailLines: 25,
});
