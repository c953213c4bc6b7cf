import fc from "fast-check";
import { expect, test } from "vitest";
import { SumTree } from "./sum-tree.js";

const weights = fc.array(fc.oneof(fc.constant(0), fc.double({ min: 0, max: 10, noNaN: true })), { maxLength: 70 });
const uniform = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

function treeOf(values: readonly number[]): SumTree {
  const tree = new SumTree();
  for (const value of values) tree.push(value);
  return tree;
}

test("sum tree, any weights, finds the index that adding up finds and none of weight 0", () => {
  const property = fc.property(weights, uniform, (values, at) => {
    const found = treeOf(values).find(at);
    const total = values.reduce((sum, value) => sum + value, 0);
    if (!(total > 0)) {
      expect(found).toBe(-1);
      return;
    }
    expect(values[found]).toBeGreaterThan(0);
    const before = values.slice(0, found).reduce((sum, value) => sum + value, 0);
    expect(before).toBeLessThanOrEqual(at * total + 1e-9);
    expect(before + (values[found] ?? 0)).toBeGreaterThanOrEqual(at * total - 1e-9);
  });
  fc.assert(property);
});

test("sum tree, weights set in any order and changed before, same total and same choice as filled at once", () => {
  const writes = fc.array(fc.tuple(fc.nat(40), fc.double({ min: 0, max: 1e6, noNaN: true })), { maxLength: 80 });
  const property = fc.property(writes, uniform, (list, at) => {
    const changed = treeOf(Array.from({ length: 41 }, () => 0.1));
    const final = Array.from({ length: 41 }, () => 0.1);
    for (const [index, weight] of list) {
      changed.set(index, weight);
      final[index] = weight;
    }
    const filled = treeOf(final);
    expect(changed.total).toBe(filled.total);
    expect(changed.find(at)).toBe(filled.find(at));
  });
  fc.assert(property);
});

test("sum tree, a weight below 0, not finite or outside, refused", () => {
  const tree = treeOf([1]);
  for (const weight of [-1, Number.NaN, Number.POSITIVE_INFINITY])
    expect(() => tree.set(0, weight)).toThrow(RangeError);
  for (const index of [-1, 1]) expect(() => tree.set(index, 1)).toThrow(RangeError);
});

test("sum tree, rounding carries the draw past the last weight, the last weight that is not 0", () => {
  // Found by trying weights at random: with the greatest uniform below 1, rest - left is not below 0.276…
  const values = [
    31.440439344220316, 0.7793023150621554, 0, 0, 32.24458894433311, 34.98987469041137, 0.27616319510263443, 0,
  ];
  expect(treeOf(values).find(1 - 2 ** -53)).toBe(6);
});
