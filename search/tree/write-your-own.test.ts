import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { exportNodes, type StepResult } from "../index.js";
import { epsilonGreedy } from "../testing/epsilon-greedy.js";
import { IN_ORDER } from "../testing/schedule.js";
import { runTreeSchedule, type TreeWorld } from "../testing/tree-run.js";

const actions = ["a", "b", "c"];
const world: TreeWorld = ({ id, action }): StepResult => {
  return { kind: "value", reward: action === "b" ? 0.5 : 0, value: (id % 7) / 7, terminated: false, actions };
};

test("example in the documentation, is the file that is compiled and tested here", () => {
  const text = readFileSync(new URL("../../docs/search/write-your-own.md", import.meta.url), "utf8");
  const code = /```ts\n([\s\S]*?)```/.exec(text)?.[1];
  const file = readFileSync(new URL("../testing/epsilon-greedy.ts", import.meta.url), "utf8");
  expect(code).toBe(file.replace('"../index.js"', '"coppice/search"'));
});

test("example, any schedule, same tree, and the better action has most of the visits", () => {
  const options = { root: { actions }, epsilon: 0.2, maxTrials: 200 };
  const plain = runTreeSchedule(epsilonGreedy, epsilonGreedy.init(options, 3), world, IN_ORDER);
  const schedule = { seed: 4, workers: 8, failure: 0.3, repeat: 0.5, restart: 0.1 };
  const other = runTreeSchedule(epsilonGreedy, epsilonGreedy.init(options, 3), world, schedule);
  expect(exportNodes(other.state)).toEqual(exportNodes(plain.state));
  expect(epsilonGreedy.path(plain.state, epsilonGreedy.best(plain.state).node)[0]?.action).toBe("b");
  expect(() => epsilonGreedy.init({ root: { actions }, epsilon: 2 }, 3)).toThrow("epsilon");
});
