import { expect, test } from "vitest";
import environment, { drawMap, situation, title } from "./index.js";
import { firstObservation } from "./observation.js";

const observation = firstObservation("You're at end of road again.");

function visit(order: number, from: string | undefined, action: string, to: string | undefined) {
  const landmarks = (room: string | undefined): Record<string, string> => (room === undefined ? {} : { room });
  return {
    trial: 1,
    step: order,
    order,
    action,
    observation: { ...observation },
    cell: "",
    from: landmarks(from),
    landmarks: landmarks(to),
    reward: 0,
    terminated: false,
  } as unknown as Parameters<typeof drawMap>[0][number];
}

test("module, what a demonstration needs, is there", () => {
  expect(environment.name).toBe("adventure");
  expect(title).toBe("Colossal Cave Adventure");
});

test("drawMap, visits with steps in the dark, rooms that were seen", () => {
  const svg = drawMap([
    visit(0, "End of road", "gully", "Valley"),
    visit(1, "Valley", "down", undefined),
    visit(2, undefined, "on", "Debris Room"),
  ]);
  expect(svg).toContain("2 rooms and 1 passage");
  expect(svg).not.toContain("Darkness");
});

test("drawMap, best trajectory given, marked", () => {
  const visits = [visit(0, "End of road", "gully", "Valley")];
  expect(drawMap(visits, [{ trial: 1, index: 0 }])).toContain("BEST");
  expect(drawMap(visits)).not.toContain("BEST");
});

test("situation, observation, place, hands and deeds in its first line, then the reply", () => {
  const text = situation({ ...observation, carrying: ["keys", "lamp"], achieved: ["grate open"] });
  expect(text).toBe("End of road; carrying keys, lamp; grate open\nYou're at end of road again.");
});
