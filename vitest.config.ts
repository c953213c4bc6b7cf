import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // Half of the time goes into starting processes and importing: all processors share it.
    maxWorkers: "100%",
    projects: [
      {
        test: {
          name: "unit",
          include: ["{engine,sandbox-pool,examples,benchmarks,test}/**/*.test.ts"],
          exclude: ["**/*.e2e.test.ts"],
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: "search",
          include: ["search/**/*.test.ts"],
          // Pure functions leave nothing behind, and loading them anew for every file takes longer than most of its tests.
          isolate: false,
          testTimeout: 60_000,
        },
      },
      {
        test: {
          name: "e2e",
          include: ["{engine,sandbox-pool,examples,test}/**/*.e2e.test.ts"],
          // One emulated host at a time: two cores are soon spent, and each file may end the host it used.
          fileParallelism: false,
          testTimeout: 300_000,
          hookTimeout: 600_000,
        },
      },
    ],
  },
});
