/** A binary heap of numbers with a strict total order given from outside: the first is at the top. */
export class Heap<Entry> {
  readonly #entries: Entry[] = [];
  readonly #isBefore: (left: Entry, right: Entry) => boolean;

  constructor(isBefore: (left: Entry, right: Entry) => boolean) {
    this.#isBefore = isBefore;
  }

  get top(): Entry | undefined {
    return this.#entries[0];
  }

  push(entry: Entry): void {
    const entries = this.#entries;
    let at = entries.length;
    entries.push(entry);
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!this.#isBefore(entry, entries[above] as Entry)) break;
      entries[at] = entries[above] as Entry;
      at = above;
    }
    entries[at] = entry;
  }

  pop(): Entry | undefined {
    const entries = this.#entries;
    const top = entries[0];
    const last = entries.pop();
    if (last === undefined || entries.length === 0) return top;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= entries.length) break;
      const right = below + 1;
      if (right < entries.length && this.#isBefore(entries[right] as Entry, entries[below] as Entry)) below = right;
      if (!this.#isBefore(entries[below] as Entry, last)) break;
      entries[at] = entries[below] as Entry;
      at = below;
    }
    entries[at] = last;
    return top;
  }
}
