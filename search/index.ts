export { adaptiveBudget, armsOf, type BudgetArm } from "./adaptive-budget.js";
export type {
  Asked,
  Changed,
  Changes,
  Forecast,
  NodeView,
  PathStep,
  SearchAlgorithm,
  SearchBlock,
  SearchStatus,
  Told,
} from "./algorithm.js";
export type { Standing } from "./archive.js";
export type { ArchiveSearch } from "./archive-search.js";
export { type ArchiveState, heldCheckpoints, type SerialisedArchive, verifiedBy } from "./archive-state.js";
export { bestOfN, independentRetry, randomBranch } from "./baselines.js";
export type { CellKnowledge, KnowledgeWeights } from "./cell-knowledge.js";
export type {
  AdaptiveBudgetOptions,
  ArchiveConfig,
  ArchiveOptions,
  BestOfNOptions,
  GoExploreOptions,
  IndependentRetryOptions,
  RandomBranchOptions,
  RandomRolloutsOptions,
  RootState,
  TargetOptions,
} from "./config.js";
export { backwardCurriculum } from "./curriculum/backward-curriculum.js";
export type {
  BackwardChanges,
  BackwardCurriculum,
  BackwardOutcome,
  BackwardState,
  BackwardStatus,
  BackwardTrial,
} from "./curriculum/backward-state.js";
export { BACKWARD_DEFAULTS, type BackwardOptions, type DemonstrationState } from "./curriculum/config.js";
export { type CellWeights, type CountWeight, DEFAULTS, PAPER_ATARI, PAPER_MONTEZUMA } from "./defaults.js";
export { checkSeed, type DrawName, drawInteger, drawSeed, drawUniform } from "./draws.js";
export {
  CELL_DEFAULTS,
  type CellSearchOptions,
  type CellSearchResult,
  cellScore,
  searchCells,
} from "./dynamic-cells.js";
export { SearchError, type SearchErrorCode, type SearchErrorOptions, type SearchFaultDomain } from "./errors.js";
export { type ExportedCell, type ExportedNode, type ExportedTree, exportTree } from "./export-tree.js";
export { goExplore } from "./go-explore.js";
export { type BeamOptions, beam } from "./graph/beam.js";
export {
  type AStarOptions,
  aStar,
  bestFirst,
  type DeepeningOptions,
  iterativeDeepening,
  uniformCost,
  type WayOptions,
} from "./graph/best-first.js";
export { HALVING_DEFAULTS, type HalvingOptions } from "./halving/config.js";
export { asha, successiveHalving } from "./halving/halving.js";
export type {
  HalvingChanges,
  HalvingOutcome,
  HalvingSearch,
  HalvingState,
  HalvingTrial,
  RankedRollout,
} from "./halving/halving-state.js";
export { type ActionChoice, chooseAction } from "./policy.js";
export type { MapElitesOptions } from "./population/config.js";
export { POPULATION_DEFAULTS } from "./population/config.js";
export type { Placement } from "./population/elite-grid.js";
export {
  mapElites,
  type PopulationChanges,
  type PopulationElite,
  type PopulationSearch,
  type PopulationStatus,
} from "./population/map-elites.js";
export type {
  PlacedSolution,
  PopulationOutcome,
  PopulationState,
  PopulationTrial,
  Solution,
} from "./population/population-state.js";
export { randomRollouts } from "./random-rollouts.js";
export { archiveSamples, redivide } from "./redivide.js";
export {
  type ArchiveDelta,
  ArchiveReplica,
  archiveDelta,
  type CandidateJudge,
  type Judgement,
  type Offer,
} from "./replica.js";
export type { Candidate, ReturnWay, RolloutOutcome, RolloutTrial, StartPoint, Visit } from "./rollout.js";
export { type ArchiveSummary, summarise } from "./summary.js";
export { type AbMctsOptions, abMcts, type BetaPrior, type GaussianPrior } from "./tree/ab-mcts.js";
export {
  allVisits,
  type Choices,
  type ExpandRule,
  normalisedReturn,
  returnBounds,
  totalVisits,
} from "./tree/choices.js";
export type {
  InFlightRule,
  ReturnRange,
  TreeConfig,
  TreeOptions,
  TreeRoot,
  Widening,
} from "./tree/config.js";
export { TREE_DEFAULTS } from "./tree/defaults.js";
export { type ExportedTreeNode, exportNodes } from "./tree/export-nodes.js";
export { type GumbelOptions, gumbelMuZero } from "./tree/gumbel.js";
export { type LatsOptions, lats } from "./tree/lats.js";
export type { RecordedStep, StepResult, TreeOutcome, TreeTrial } from "./tree/outcome.js";
export type { BackupRule, Recommendation, TreePolicy } from "./tree/policy.js";
export { drawAction, type PuctOptions, puct, type RootNoise } from "./tree/puct.js";
export { averageBackup, maxBackup, mostVisits, widen } from "./tree/rules.js";
export type { SerialisedTree, TreeState } from "./tree/state.js";
export type { TreeSearch } from "./tree/tree-algorithm.js";
export { createTreeSearch } from "./tree/tree-search.js";
export { type UctOptions, uct } from "./tree/uct.js";
export type { ActionStatistics } from "./tree/view.js";
