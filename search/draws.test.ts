import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chooseAction, drawInteger, drawSeed, drawUniform } from "./index.js";
import { runs } from "./testing/runs.js";

const name = fc.oneof(
  fc.maxSafeInteger(),
  fc.string({ unit: "binary", maxLength: 5 }),
  fc.constantFrom("", "0", "1,2"),
);

describe("draws", () => {
  test("two different lists of names, different draws", () => {
    const names = fc.array(name, { maxLength: 4 });
    const property = fc.property(names, names, (left, right) => {
      fc.pre(JSON.stringify(left) !== JSON.stringify(right));
      expect(drawSeed(1, ...left)).not.toBe(drawSeed(1, ...right));
    });
    fc.assert(property, runs(200));
  });

  test("names that look alike when joined, different draws", () => {
    const lists = [
      [],
      [""],
      ["", ""],
      [0],
      ["0"],
      ["0", "0"],
      ["00"],
      [0, 0],
      [-0, 1],
      [1, 0],
      ["a,b"],
      ["a", "b"],
      ["ab"],
    ];
    expect(new Set(lists.map((names) => drawSeed(7, ...names))).size).toBe(lists.length);
  });

  test("neighbouring seeds and neighbouring names, evenly spread: chi-squared of 64 boxes within its 0.001 bounds", () => {
    for (const draw of [(index: number) => drawUniform(index, "x"), (index: number) => drawUniform(7, "x", index)]) {
      const boxes = new Float64Array(64);
      for (let index = 0; index < 64_000; index += 1) {
        const box = Math.floor(draw(index) * 64);
        boxes[box] = (boxes[box] ?? 0) + 1;
      }
      const chiSquared = boxes.reduce((sum, count) => sum + (count - 1_000) ** 2 / 1_000, 0);
      // 63 degrees of freedom: 0.0005 and 0.9995 quantiles.
      expect(chiSquared).toBeGreaterThan(32.4);
      expect(chiSquared).toBeLessThan(106.3);
    }
  });

  test("a long name after a short one, same draw as before it", () => {
    const before = drawSeed(1, "short");
    drawSeed(1, "x".repeat(100_000));
    expect(drawSeed(1, "short")).toBe(before);
  });

  test("integers below a count, all of them and no other", () => {
    const drawn = Array.from({ length: 200 }, (_, index) => drawInteger(3, 5, index));
    expect([...new Set(drawn)].sort()).toEqual([0, 1, 2, 3, 4]);
  });
});

describe("random policy", () => {
  const actions = ["n", "e", "s", "w"];

  test("same seed and step, same action; every action comes", () => {
    const chosen = Array.from({ length: 100 }, (_, step) => chooseAction({ seed: 1, step, actions }));
    expect(Array.from({ length: 100 }, (_, step) => chooseAction({ seed: 1, step, actions }))).toEqual(chosen);
    expect([...new Set(chosen)].sort()).toEqual([...actions].sort());
  });

  test("runs of 20 on average, actions change about every 20 steps as far as the draw is another", () => {
    let previous: string | undefined;
    let changes = 0;
    for (let step = 0; step < 40_000; step += 1) {
      const common = { seed: 5, step, actions, meanRepeat: 20 };
      const action = chooseAction(previous === undefined ? common : { ...common, previous });
      if (action !== previous) changes += 1;
      previous = action;
    }
    // A new draw every 20 steps, of which a quarter gives the same action again: 1,500, standard deviation below 40.
    expect(Math.abs(changes - 1_500)).toBeLessThan(160);
  });

  test("previous action is not offered any more, a new one", () => {
    for (let step = 0; step < 50; step += 1) {
      expect(actions).toContain(chooseAction({ seed: 2, step, actions, previous: "swim", meanRepeat: 1e9 }));
    }
  });
});
