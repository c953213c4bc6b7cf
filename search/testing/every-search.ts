import {
  abMcts,
  adaptiveBudget,
  aStar,
  asha,
  type BackwardTrial,
  backwardCurriculum,
  beam,
  bestFirst,
  bestOfN,
  drawInteger,
  exportNodes,
  goExplore,
  gumbelMuZero,
  type HalvingState,
  type HalvingTrial,
  heldCheckpoints,
  independentRetry,
  iterativeDeepening,
  lats,
  mapElites,
  type PopulationState,
  type PopulationTrial,
  puct,
  type RolloutOutcome,
  type RolloutTrial,
  randomBranch,
  randomRollouts,
  type SearchStatus,
  successiveHalving,
  type TreeState,
  type TreeTrial,
  uct,
  uniformCost,
} from "../index.js";
import type { Drivable } from "./drive.js";
import { scriptedOutcome } from "./schedule.js";
import { checkpointOf, scriptedWorld } from "./tree-run.js";

interface AnyTrial {
  readonly id: number;
  readonly attempt: number;
}

export interface AnyState {
  readonly config: { readonly maxAttempts: number };
}

export type AnyOutcome = { readonly kind: string };

interface AnySearch extends Drivable<AnyState, AnyTrial, AnyOutcome> {
  readonly init: (options: never, seed: number) => AnyState;
  tell(
    state: AnyState,
    trial: number,
    attempt: number,
    outcome: AnyOutcome,
  ): {
    readonly changes: { readonly released: readonly string[] };
    readonly verdict: string;
  };
  finish(state: AnyState): unknown;
  status(state: AnyState): Pick<SearchStatus, "inFlight" | "waiting" | "held" | "done" | "block">;
  best?(state: AnyState): unknown;
}

/** What all algorithms can be told. */
export interface Limits {
  readonly window: number;
  readonly maxAttempts: number;
  readonly maxTrials: number;
}

/** One algorithm as every property of all algorithms needs it. */
export interface EverySearch {
  readonly name: string;
  readonly search: AnySearch;
  readonly init: (limits: Limits, seed: number) => AnyState;
  /** What a trial comes to, of every kind, by a number; told numbers are multiples of `scale`. */
  readonly outcome: (seed: number, scale: number, trial: AnyTrial) => AnyOutcome;
  /** A good outcome in which one told number is `value`, for each field that a number is told in. */
  readonly withNumber: (value: number, trial: AnyTrial) => Readonly<Record<string, AnyOutcome>>;
  readonly namesOf: (outcome: AnyOutcome) => readonly string[];
  /** Names that the search still needs. */
  readonly needed: (state: AnyState) => readonly string[];
  /** Counts of what is under way, wherever the search keeps them. */
  readonly underWay: (state: AnyState) => readonly number[];
  /** The greatest number that it takes. */
  readonly largest: number;
}

type Own<Given> = Given & Pick<EverySearch, "name"> & { readonly options?: object };

function initOf(search: unknown, options: object): EverySearch["init"] {
  return (limits, seed) => (search as AnySearch).init({ ...options, ...limits } as never, seed);
}

const LARGEST = 1e308;

function tree(
  given: Own<{ readonly search: unknown; readonly largest?: number; readonly players?: 1 | 2 }>,
): EverySearch {
  const { search, name, options = {}, largest = LARGEST, players = 1 } = given;
  const state = { kind: "value", reward: 0, value: 0, terminated: false, actions: ["act 0", "act 1"] } as const;
  const proposal = ({ action }: TreeTrial) => (action === null ? { action: "idea" } : {});
  const rest = players === 2 ? { player: 0 as const } : {};
  return {
    name,
    search: search as AnySearch,
    init: initOf(search, {
      root: { actions: ["act 0", "act 1", "act 2"], key: "root" },
      ...(players === 2 ? { players } : {}),
      ...options,
    }),
    outcome: (seed, scale, trial) =>
      scriptedWorld({ seed, keys: 5, scale, players, hasPriors: seed % 2 === 0 })(trial as TreeTrial),
    withNumber: (value, trial) => ({
      reward: { ...state, ...rest, ...proposal(trial as TreeTrial), key: "k", reward: value },
      value: { ...state, ...rest, ...proposal(trial as TreeTrial), key: "k", value },
    }),
    namesOf: checkpointOf,
    needed: (state) => [...(state as TreeState).held],
    underWay: (state) => exportNodes(state as TreeState).map(({ inFlight }) => inFlight),
    largest,
  };
}

function archive(given: Own<{ readonly search: unknown }>): EverySearch {
  const { search, name, options = {} } = given;
  const visit = { action: "go", cell: "cell 1", reward: 0, terminated: false };
  return {
    name,
    search: search as AnySearch,
    init: initOf(search, { root: { cell: "cell 0" }, stepsPerTrial: 6, ...options }),
    outcome: (seed, scale, trial) => scriptedOutcome({ seed, cells: 9, scale }, trial as RolloutTrial),
    withNumber: (value) => ({
      "visits[0].reward": { kind: "value", visits: [{ ...visit, reward: value }] } as RolloutOutcome,
      "visits[0].score": { kind: "value", visits: [{ ...visit, score: value }] } as RolloutOutcome,
    }),
    namesOf: (outcome) => {
      const { kind, visits = [] } = outcome as Partial<Extract<RolloutOutcome, { readonly kind: "value" }>>;
      if (kind !== "value") return [];
      return visits.flatMap(({ candidate }) => (candidate === undefined ? [] : [candidate.checkpoint]));
    },
    needed: (state) => heldCheckpoints(state as never),
    underWay: (state) => (state as ReturnType<typeof goExplore.init>).archive.cells.inFlight.toArray(),
    largest: LARGEST,
  };
}

/** Of a trial whose number is `id`: lost, rejected, or a value. */
function kindOf(seed: number, id: number): AnyOutcome | null {
  const kind = drawInteger(seed, 12, "kind", id);
  if (kind === 0) return { kind: "infrastructure-failure" };
  return kind === 1 ? { kind: "rejected" } : null;
}

function halving(given: Own<{ readonly search: unknown }>): EverySearch {
  return {
    name: given.name,
    search: given.search as AnySearch,
    init: initOf(given.search, { candidates: 12, maxSteps: 16, factor: 2, ...given.options }),
    outcome: (seed, scale, trial) => {
      const { id } = trial as HalvingTrial;
      const score = (drawInteger(seed, 9, "score", id) - 4) * scale;
      return kindOf(seed, id) ?? ({ kind: "value", score, checkpoint: `${id}` } as AnyOutcome);
    },
    withNumber: (value) => ({ score: { kind: "value", score: value } as AnyOutcome }),
    namesOf: checkpointOf,
    needed: (state) =>
      (state as HalvingState).candidates.flatMap(({ checkpoint }) => (checkpoint === null ? [] : [checkpoint])),
    underWay: () => [],
    largest: LARGEST,
  };
}

const population: EverySearch = {
  name: "map-elites, islands, thresholds that learn",
  search: mapElites as unknown as AnySearch,
  init: initOf(mapElites, {
    islands: 3,
    initial: 2,
    migrateEvery: 7,
    migrationRate: 0.3,
    inspirations: 1,
    learningRate: 0.5,
    thresholdMin: -1e308,
  }),
  outcome: (seed, scale, trial) => {
    const { id } = trial as PopulationTrial;
    const pick = (what: string, below: number): number => drawInteger(seed, below, what, id);
    const solution = {
      content: `text ${pick("text", 40)}`,
      objective: (pick("objective", 9) - 4) * scale,
      cell: `${pick("cell", 6)}`,
    };
    return kindOf(seed, id) ?? ({ kind: "value", ...solution } as AnyOutcome);
  },
  withNumber: (value) => ({ objective: { kind: "value", content: "text", cell: "0", objective: value } as AnyOutcome }),
  namesOf: (outcome) => ("content" in outcome ? [outcome.content as string] : []),
  needed: (state) => {
    const best = mapElites.best(state as PopulationState);
    const needed = mapElites.elites(state as PopulationState).map(({ content }) => content);
    return [...new Set(best === null ? needed : [...needed, best.content])];
  },
  underWay: () => [],
  largest: LARGEST,
};

const curriculum: EverySearch = {
  name: "backward curriculum",
  search: backwardCurriculum as unknown as AnySearch,
  init: initOf(backwardCurriculum, {
    demonstration: Array.from({ length: 8 }, (_, index) => ({ checkpoint: `c${index}`, step: 2 * index, gainLeft: 1 })),
    steps: 16,
    judged: 3,
    spread: 3,
    moveThreshold: 0.5,
  }),
  outcome: (seed, scale, trial) => {
    const { id } = trial as BackwardTrial;
    const gain = (drawInteger(seed, 9, "gain", id) - 2) * scale;
    return kindOf(seed, id) ?? ({ kind: "value", gain, steps: 3 } as AnyOutcome);
  },
  withNumber: (value) => ({ gain: { kind: "value", gain: value, steps: 3 } as AnyOutcome }),
  namesOf: () => [],
  needed: () => [],
  underWay: () => [],
  largest: LARGEST,
};

const wide = [-1.7e308, 1.7e308];

/** All algorithms of this folder, and the forms of one that differ in what they compute. */
export const EVERY_SEARCH: readonly EverySearch[] = [
  tree({ name: "uct", search: uct }),
  tree({ name: "uct, two players, max, proofs", search: uct, players: 2, options: { backup: "max", solver: true } }),
  tree({ name: "uct, tuned", search: uct, options: { formula: "tuned", range: wide } }),
  tree({
    name: "uct, chance, widening of both kinds",
    search: uct,
    options: { stochastic: true, widening: { k: 1, alpha: 0.5 }, outcomeWidening: { k: 1, alpha: 0.5 } },
  }),
  tree({ name: "uct, transpositions", search: uct, options: { transpositions: true } }),
  tree({ name: "uct, virtual loss", search: uct, options: { inFlight: "virtual-loss" } }),
  tree({ name: "uct, proposals", search: uct, options: { proposals: true } }),
  tree({ name: "puct, as muzero", search: puct, options: { noise: {} } }),
  tree({ name: "puct, as alphazero", search: puct, options: { form: "alphazero", range: [-1, 1] }, largest: 1 }),
  tree({ name: "gumbel muzero", search: gumbelMuZero, options: { maxSimulations: 60 } }),
  tree({ name: "ab-mcts-a, gaussian", search: abMcts, options: { range: wide } }),
  tree({ name: "ab-mcts-a, beta", search: abMcts, options: { range: wide, distribution: "beta" } }),
  tree({ name: "lats", search: lats, options: { children: 3 } }),
  tree({ name: "best-first", search: bestFirst }),
  tree({ name: "uniform cost", search: uniformCost, options: { transpositions: true } }),
  tree({ name: "a*", search: aStar, options: { transpositions: true } }),
  tree({ name: "iterative deepening", search: iterativeDeepening }),
  tree({ name: "beam", search: beam, options: { width: 3, diversity: 0.5 } }),
  archive({ name: "go-explore", search: goExplore, options: { weights: { scoreHigh: 1 } } }),
  archive({ name: "go-explore, return by a policy", search: goExplore, options: { policyReturn: {} } }),
  archive({ name: "random rollouts", search: randomRollouts }),
  {
    ...archive({ name: "best of n", search: bestOfN }),
    init: ({ maxTrials: n, ...limits }, seed) =>
      bestOfN.init({ root: { cell: "cell 0" }, stepsPerTrial: 6, n, ...limits }, seed),
  },
  archive({ name: "independent retry", search: independentRetry, options: { target: 1e300 } }),
  archive({ name: "random branch", search: randomBranch, options: { target: 1e300 } }),
  archive({ name: "adaptive budget", search: adaptiveBudget, options: { target: 1e300 } }),
  halving({ name: "successive halving", search: successiveHalving }),
  halving({ name: "asha", search: asha }),
  population,
  curriculum,
];
