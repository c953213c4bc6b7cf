/** A number that halves every `halfLifeMs`: recent events count, old ones fade. */
export class Decaying {
  readonly #halfLifeMs: number;
  #value = 0;
  #at = 0;

  constructor(halfLifeMs: number) {
    this.#halfLifeMs = halfLifeMs;
  }

  value(now: number): number {
    return this.#value * 0.5 ** (Math.max(0, now - this.#at) / this.#halfLifeMs);
  }

  /** Never below zero. */
  add(now: number, amount: number): void {
    this.set(now, this.value(now) + amount);
  }

  set(now: number, value: number): void {
    this.#value = Math.max(0, value);
    this.#at = now;
  }
}
