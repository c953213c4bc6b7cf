/** The different scores in an archive, each with its rank: 1 is the best, equal scores share one. */
export class ScoreRanks {
  readonly #counts = new Map<number, number>();
  #sorted: number[] | null = null;

  /** Returns whether ranks of other scores changed. */
  add(score: number): boolean {
    const count = this.#counts.get(score) ?? 0;
    this.#counts.set(score, count + 1);
    if (count > 0) return false;
    this.#sorted = null;
    return true;
  }

  /** Returns whether ranks of other scores changed. */
  remove(score: number): boolean {
    const count = this.#counts.get(score) ?? 0;
    if (count > 1) {
      this.#counts.set(score, count - 1);
      return false;
    }
    this.#counts.delete(score);
    this.#sorted = null;
    return true;
  }

  rank(score: number): number {
    this.#sorted ??= [...this.#counts.keys()].sort((left, right) => right - left);
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#sorted[middle] as number) > score) low = middle + 1;
      else high = middle;
    }
    return low + 1;
  }
}
