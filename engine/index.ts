/** What others may use of the engine. */

export { run } from "./compose.js";
export { defineEnvironment, type Environment, type EnvironmentContext, type StepResult } from "./environment.js";
export type { Json } from "./json.js";
export { type PolicySpec, type RandomPolicy, randomPolicy } from "./policy/policy.js";
export type { RunOptions } from "./run/options.js";
export type { CheckpointCounts, Progress, VisitReport } from "./run/progress.js";
export type { BestFound, RunResult } from "./run/run.js";
export type { LatencySummary } from "./scheduler/latency.js";
export type { TrajectoryStep } from "./scheduler/node-table.js";
export { goExplore, randomRollouts, type SearchSpec } from "./scheduler/searches.js";
