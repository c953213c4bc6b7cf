import type { Forecast } from "./algorithm.js";
import type { Archive } from "./archive.js";

/** The `count` most likely starts by their share of all weight; equal ones in the order of their cells. */
export function forecastByWeight(archive: Archive, count: number): Forecast[] {
  const total = archive.totalWeight;
  const cells: number[] = [];
  for (let cell = 0; cell < archive.cellCount; cell += 1) if (archive.weight(cell) > 0) cells.push(cell);
  cells.sort((left, right) => archive.weight(right) - archive.weight(left) || left - right);
  return cells.slice(0, count).map((cell) => {
    const node = archive.cells.node.get(cell);
    return { node, checkpoint: archive.checkpoint(node), weight: archive.weight(cell) / total };
  });
}
