import type { Solution } from "./population-state.js";

/** The solutions that somebody needs. Each is held by its cells, by trials that start from it, and by being the best. */
export class SolutionStore {
  readonly #solutions = new Map<number, { readonly solution: Solution; holds: number }>();
  /** How many solutions, and results that wait for their turn, have a content: equal ones are released together. */
  readonly #contents = new Map<string, number>();
  /** Solutions made so far. */
  made: number;

  constructor(made = 0) {
    this.made = made;
  }

  get(id: number): Solution {
    const entry = this.#solutions.get(id);
    if (entry === undefined) throw new RangeError(`Solution ${id} is not kept`);
    return entry.solution;
  }

  has(content: string): boolean {
    return this.#contents.has(content);
  }

  noteContent(content: string): void {
    this.#contents.set(content, (this.#contents.get(content) ?? 0) + 1);
  }

  /** Adds a solution, whose content has been noted, with no hold. */
  add(solution: Solution): void {
    this.#solutions.set(solution.id, { solution, holds: 0 });
  }

  hold(id: number): void {
    const entry = this.#solutions.get(id);
    if (entry !== undefined) entry.holds += 1;
  }

  /** Gives up a solution that nobody holds. Returns its content if no other has the same. */
  sweep(id: number): string | null {
    const entry = this.#solutions.get(id);
    if (entry === undefined || entry.holds > 0) return null;
    this.#solutions.delete(id);
    const { content } = entry.solution;
    const left = (this.#contents.get(content) ?? 0) - 1;
    if (left > 0) {
      this.#contents.set(content, left);
      return null;
    }
    this.#contents.delete(content);
    return content;
  }

  drop(id: number): string | null {
    const entry = this.#solutions.get(id);
    if (entry !== undefined) entry.holds -= 1;
    return this.sweep(id);
  }

  /** In the order in which they were made. */
  toData(): Solution[] {
    return [...this.#solutions.values()].map(({ solution }) => ({ ...solution }));
  }
}
