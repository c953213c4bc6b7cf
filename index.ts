export { run } from "./engine/compose.js";
export {
  defineEnvironment,
  type Environment,
  type EnvironmentContext,
  type StepResult,
} from "./engine/environment.js";
export type { Json } from "./engine/json.js";
export { type PolicySpec, type RandomPolicy, randomPolicy } from "./engine/policy/policy.js";
export type { RunOptions } from "./engine/run/options.js";
export type { CheckpointCounts, Progress, VisitReport } from "./engine/run/progress.js";
export type { BestFound, RunResult } from "./engine/run/run.js";
export type { LatencySummary } from "./engine/scheduler/latency.js";
export type { TrajectoryStep } from "./engine/scheduler/node-table.js";
export { goExplore, randomRollouts, type SearchSpec } from "./engine/scheduler/searches.js";
export type {
  CallOptions,
  Checkpoint,
  ConnectOptions,
  ExecOptions,
  ExecResult,
  ForkOptions,
  ForkResult,
  Host,
  HostAddress,
  HostCloseOptions,
  HostInfo,
  HostStats,
  Image,
  ImageBuilder,
  ImageSpec,
  Pool,
  PoolStats,
  Pty,
  PtyExchange,
  PtyOpenOptions,
  PtyOutput,
  PtyReadOptions,
  Sandbox,
  SandboxFiles,
  Stages,
  Template,
  TemplateOptions,
  WarmPoolOptions,
} from "./sandbox-pool/index.js";
export { CoppiceError, type CoppiceErrorOptions, connectHost, type FaultDomain } from "./sandbox-pool/index.js";
