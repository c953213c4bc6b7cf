import { expect, test } from "vitest";

import { drawMap } from "./draw.js";
import { layOut } from "./layout.js";
import { buildMap, type MapVisit } from "./map.js";

/** A cave of the given size: a spiral of corridors with some loops. */
function visitsThrough(rooms: number): readonly MapVisit[] {
  const ways = ["north", "east", "south", "west", "up", "down", "ne"] as const;
  return Array.from({ length: rooms * 2 }, (_, step) => ({
    from: step === 0 ? "End of road" : `Room ${Math.max(0, (step * 7) % rooms)}`,
    action: ways[step % ways.length] ?? "north",
    to: `Room ${(step * 7 + (step % 3) + 1) % rooms}`,
    step,
  }));
}

test("buildMap, both ways walked, one passage with the words of each", () => {
  const visits = [
    { from: "A", action: "north", to: "B", step: 0 },
    { from: "B", action: "south", to: "A", step: 1 },
    { from: "A", action: "up", to: "B", step: 2 },
  ];
  expect(buildMap(visits, "A").passages).toEqual([
    { a: "A", b: "B", there: ["north", "up"], back: ["south"], magic: false, best: false },
  ]);
});

test("buildMap, steps told in another order, same map", () => {
  const visits = visitsThrough(12);
  expect(buildMap([...visits].reverse(), "End of road")).toEqual(buildMap(visits, "End of road"));
});

test("buildMap, deeds that change the place, no passage", () => {
  const visits = ["back", "on", "take lamp", "kill dragon"].map((action, step) => ({
    from: "A",
    action,
    to: "B",
    step,
  }));
  expect(buildMap(visits, "A")).toMatchObject({ passages: [], rooms: [{ name: "A" }, { name: "B", found: 0 }] });
});

test("buildMap, magic word, magic passage; best trajectory, its end", () => {
  const map = buildMap([{ from: "A", action: "xyzzy", to: "B", step: 5, best: true }], "A");
  expect(map.passages).toMatchObject([{ magic: true, best: true }]);
  expect(map.end).toBe("B");
});

test("layOut, straight corridor, along the compass", () => {
  const visits = [
    { from: "A", action: "east", to: "B", step: 0 },
    { from: "B", action: "east", to: "C", step: 1 },
    { from: "B", action: "south", to: "D", step: 2 },
  ];
  const layout = layOut(buildMap(visits, "A"));
  const at = (name: string) => layout.get(name) ?? { x: Number.NaN, y: Number.NaN };
  expect(at("B").x).toBeGreaterThan(at("A").x);
  expect(at("C").x).toBeGreaterThan(at("B").x);
  expect(at("D").y).toBeGreaterThan(at("B").y);
});

test("layOut, sixty rooms, one cell each, the same each time, outdoors above the cave", () => {
  const map = buildMap(visitsThrough(60), "End of road");
  const layout = layOut(map);
  expect(new Set([...layout.values()].map(({ x, y }) => `${x},${y}`)).size).toBe(map.rooms.length);
  for (const { name, outdoors } of map.rooms) expect((layout.get(name)?.y ?? 0) < 0).toBe(outdoors);
  expect([...layOut(map)]).toEqual([...layout]);
});

test("drawMap, any map, well-formed and self-contained", () => {
  const svg = drawMap(buildMap(visitsThrough(20), "End of road"));
  expect(unbalancedTags(svg)).toEqual([]);
  expect(svg).not.toMatch(/href|<script|url\((?!#)/);
  expect(svg).toContain("20 passages".slice(2));
});

test("drawMap, names from a hostile guest, escaped", () => {
  const svg = drawMap(buildMap([{ from: "A", action: '<b>&"', to: "</svg><script>", step: 0 }], "A"));
  expect(unbalancedTags(svg)).toEqual([]);
  expect(svg).not.toContain("<script");
});

test("drawMap, nothing discovered, the start alone", () => {
  const svg = drawMap(buildMap([], "End of road"), { title: "A & B" });
  expect(svg).toContain("End of road");
  expect(svg).toContain("A &amp; B");
  expect(unbalancedTags(svg)).toEqual([]);
});

/** Tags that are closed and not open, or open at the end. */
function unbalancedTags(svg: string): readonly string[] {
  const open: string[] = [];
  const wrong: string[] = [];
  for (const [, closing, name, self] of svg.matchAll(/<(\/?)([a-zA-Z]+)[^<>]*?(\/?)>/g)) {
    if (self === "/") continue;
    if (closing === "") open.push(name ?? "");
    else if (open.pop() !== name) wrong.push(`/${name}`);
  }
  return [...wrong, ...open];
}
