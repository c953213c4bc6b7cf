import type { Forecast } from "../algorithm.js";
import type { Descent } from "./descend.js";
import { countInFlight } from "./merge.js";
import type { TreeState } from "./state.js";

/**
 * Where the next trials start if nothing more is told: trials that wait for a retry, then what the algorithm would choose now. The
 * first is exact where no known end is visited before it; for further ones only the counts of what is under way are known, and not which
 * actions are gone by then. Empty where nothing can be chosen before results that are held are merged.
 */
export function forecastTree(state: TreeState, count: number, choose: () => Descent | null): readonly Forecast[] {
  const { tree, book } = state;
  if (book.closed) return [];
  const waiting = book.open.filter(({ phase }) => phase === "waiting").map(({ from }) => from);
  const nodes = waiting.slice(0, count);
  const ahead: (readonly number[])[] = [];
  while (nodes.length < count) {
    const descent = choose();
    if (descent === null) break;
    const { path } = descent.line;
    nodes.push(path[path.length - 1] as number);
    ahead.push(path);
    countInFlight(state, path, 1);
  }
  for (const path of ahead) countInFlight(state, path, -1);
  const counts = new Map<number, number>();
  for (const node of nodes) counts.set(node, (counts.get(node) ?? 0) + 1);
  return [...counts].map(([node, times]) => {
    return { node, checkpoint: tree.checkpoint(node), weight: times / nodes.length };
  });
}
