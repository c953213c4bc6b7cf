/**
 * Non-negative weights with a weighted draw in O(log n).
 *
 * A full binary tree in an array: node `i` has children `2i` and `2i + 1`, leaves start at `#capacity`, and every inner
 * node is the sum of its children, computed anew when a leaf changes. So the sums depend on the weights alone and not
 * on the order in which they were set (as they would in a Fenwick tree of doubles), and a restored tree draws as the
 * original one does.
 */
export class SumTree {
  #capacity = 16;
  #sums = new Float64Array(32);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get total(): number {
    return this.#sums[1] as number;
  }

  get(index: number): number {
    this.#check(index);
    return this.#sums[this.#capacity + index] as number;
  }

  push(weight: number): void {
    if (this.#length === this.#capacity) this.#grow();
    this.#length += 1;
    this.set(this.#length - 1, weight);
  }

  set(index: number, weight: number): void {
    this.#check(index);
    if (!(weight >= 0 && weight <= Number.MAX_VALUE))
      throw new RangeError(`A weight must be finite and not below 0, got ${weight}`);
    let at = this.#capacity + index;
    this.#sums[at] = weight;
    for (at >>>= 1; at >= 1; at >>>= 1)
      this.#sums[at] = (this.#sums[2 * at] as number) + (this.#sums[2 * at + 1] as number);
  }

  /** The index that `uniform` in [0, 1) falls on when weights lie end to end; never one of weight 0. -1 if all are 0. */
  find(uniform: number): number {
    if (!(this.total > 0)) return -1;
    let rest = uniform * this.total;
    let at = 1;
    while (at < this.#capacity) {
      const left = this.#sums[2 * at] as number;
      const right = this.#sums[2 * at + 1] as number;
      // Rounding can leave a rest of a full subtree: it then belongs to the last weight that is not 0.
      if (rest < left || right === 0) {
        at = 2 * at;
      } else {
        rest -= left;
        at = 2 * at + 1;
      }
    }
    return at - this.#capacity;
  }

  #check(index: number): void {
    if (!(index >= 0 && index < this.#length))
      throw new RangeError(`Index ${index} is outside a tree of ${this.#length}`);
  }

  #grow(): void {
    const leaves = this.#sums.subarray(this.#capacity);
    const capacity = 2 * this.#capacity;
    const sums = new Float64Array(2 * capacity);
    sums.set(leaves, capacity);
    for (let at = capacity - 1; at >= 1; at -= 1) sums[at] = (sums[2 * at] as number) + (sums[2 * at + 1] as number);
    this.#capacity = capacity;
    this.#sums = sums;
  }
}
