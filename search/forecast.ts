import type { Forecast } from "./algorithm.js";
import type { ArchiveState, Start } from "./archive-state.js";

/**
 * Where the next `count` trials start if nothing more is told. Draws have names, so the next ones are known, and only what
 * arrives meanwhile can change the choice; shares of the weight alone would be right less than half as often.
 */
export function forecastStarts(
  state: ArchiveState,
  count: number,
  choose: (trial: number) => Start | null,
): readonly Forecast[] {
  const { archive, book } = state;
  if (book.closed) return [];
  const waiting = book.open.filter(({ phase }) => phase === "waiting").map(({ node }) => node);
  const nodes = waiting.slice(0, count);
  const cells: number[] = [];
  for (let ahead = 0; nodes.length < count; ahead += 1) {
    const start = choose(book.asked + ahead);
    if (start === null) break;
    nodes.push(start.node);
    cells.push(start.cell);
    archive.cells.inFlight.add(start.cell, 1);
    archive.reweigh(start.cell);
  }
  for (const cell of cells) {
    archive.cells.inFlight.add(cell, -1);
    archive.reweigh(cell);
  }
  const counts = new Map<number, number>();
  for (const node of nodes) counts.set(node, (counts.get(node) ?? 0) + 1);
  return [...counts].map(([node, times]) => {
    return { node, checkpoint: archive.checkpoint(node), weight: times / nodes.length };
  });
}
