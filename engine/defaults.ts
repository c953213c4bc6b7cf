/** Every number of the engine that is a choice, with its reason. */
export const DEFAULTS = Object.freeze({
  /** Any seed is as good as another; a fixed one makes two runs comparable. */
  seed: 1,
  /** Worker threads mostly wait for the host; two hide the time of their own work. */
  workers: 2,
  /** Trials under way at once. It shapes the tree, so it is a constant and not derived from workers or cores. */
  inFlight: 4,
  /** Attempts of one trial before the run fails: one lost sandbox is bad luck, three are a broken host. */
  attempts: 3,
  /** Pauses before a fork is tried again within its trial: a busy host is at ease again in a moment. */
  forkRetryMs: Object.freeze([50, 500]),
  /** One reset, step or score, where the environment says nothing. */
  stepTimeoutMs: 10_000,
  /** What a trial may take beside its steps: forks, parks and waiting for a loaded host. */
  trialOverheadMs: 30_000,
  /** These three and ending a host together stay below 5 s: after an abort, how long a worker thread may take to clean up before it is ended. */
  abortGraceMs: 1_500,
  /** How long a worker thread may take to leave the host before it is ended. */
  leaveMs: 300,
  /** At the end of a run, how long the host may take to drop its checkpoints; the session's end drops the rest. */
  releaseMs: 1_000,
  /** Whether a sandbox is alive decides whose fault an error was: the answer must come this soon. */
  aliveCheckMs: 3_000,
  /** Between two reports of progress. */
  progressMs: 500,
  /** Between two looks at the host's memory. */
  memoryCheckMs: 5_000,
  /** Share of the host's memory below which the least useful checkpoints are evicted. */
  memoryLowWater: 0.15,
  /** Share of the hot checkpoints that one eviction takes: enough that the next look finds the host at ease. */
  evictionShare: 0.1,
  /** Hot checkpoints of one run, whatever the memory: each is a process of the host. */
  hotCheckpoints: 4_000,
});
