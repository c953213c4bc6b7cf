import { INTEGER, INTEGER_STRIDE, NONE, type Rows, SLOTS } from "./rows.js";

/** Blocks are multiples of so many slots, so that one that is given back fits many others. */
const GRAIN = 4;

/**
 * The children of each node by their slots, side by side. It repeats what the lists of siblings say: following a list costs a wait for
 * memory at each step of it, while children that are known all at once are waited for together. A node's block is made when it is first
 * chosen from; it is not serialised.
 */
export class ChildSlots {
  readonly #rows: Rows;
  #ids = new Int32Array(256);
  #end = 0;
  /** Starts of blocks that were given back, by their size. */
  readonly #spare = new Map<number, number[]>();

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /** Child or -1: `ids[of(node, …) + slot]`. Valid until the next call of `of`. */
  get ids(): Int32Array {
    return this.#ids;
  }

  /** Where the block of a node starts, which has at least `count` slots. */
  of(node: number, count: number): number {
    const { integers } = this.#rows;
    const row = node * INTEGER_STRIDE;
    if ((integers[row + SLOTS.capacity] as number) >= count) return integers[row + SLOTS.start] as number;
    this.forget(node);
    const capacity = GRAIN * Math.ceil(count / GRAIN);
    const start = this.#take(capacity);
    integers[row + SLOTS.start] = start;
    integers[row + SLOTS.capacity] = capacity;
    this.#ids.fill(NONE, start, start + capacity);
    let child = integers[row + INTEGER.firstChild] as number;
    while (child !== NONE) {
      this.#ids[start + (integers[child * INTEGER_STRIDE + INTEGER.slot] as number)] = child;
      child = integers[child * INTEGER_STRIDE + INTEGER.nextSibling] as number;
    }
    return start;
  }

  /** What stands at a slot from now on; where there is no room, the block is made anew when it is asked for. */
  set(node: number, slot: number, child: number): void {
    const { integers } = this.#rows;
    const row = node * INTEGER_STRIDE;
    const capacity = integers[row + SLOTS.capacity] as number;
    if (capacity === 0) return;
    if (slot < capacity) this.#ids[(integers[row + SLOTS.start] as number) + slot] = child;
    else this.forget(node);
  }

  /** Gives a block back: the children or their slots have changed. */
  forget(node: number): void {
    const { integers } = this.#rows;
    const row = node * INTEGER_STRIDE;
    const capacity = integers[row + SLOTS.capacity] as number;
    if (capacity === 0) return;
    const spare = this.#spare.get(capacity);
    const start = integers[row + SLOTS.start] as number;
    if (spare === undefined) this.#spare.set(capacity, [start]);
    else spare.push(start);
    integers[row + SLOTS.capacity] = 0;
  }

  #take(capacity: number): number {
    const spare = this.#spare.get(capacity)?.pop();
    if (spare !== undefined) return spare;
    const start = this.#end;
    this.#end += capacity;
    if (this.#end > this.#ids.length) {
      const larger = new Int32Array(2 * this.#end);
      larger.set(this.#ids);
      this.#ids = larger;
    }
    return start;
  }
}
