import {
  allVisits,
  averageBackup,
  type Choices,
  createTreeSearch,
  drawInteger,
  drawUniform,
  mostVisits,
  SearchError,
  type TreeOptions,
  type TreeSearch,
  type TreeState,
} from "../index.js";

interface EpsilonOptions extends TreeOptions {
  /** How often any action is taken instead of the best one, from 0 to 1. */
  readonly epsilon: number;
}

interface EpsilonParams {
  readonly epsilon: number;
}

export const epsilonGreedy: TreeSearch<EpsilonOptions, EpsilonParams> = createTreeSearch<EpsilonOptions, EpsilonParams>(
  {
    name: "epsilon-greedy",
    optionNames: ["epsilon"],
    resolve: ({ epsilon }) => {
      if (epsilon >= 0 && epsilon <= 1) return { epsilon };
      throw new SearchError(`epsilon is ${epsilon}, must be from 0 to 1`, {
        code: "INVALID_ARGUMENT",
        faultDomain: "user",
        field: "epsilon",
        remedy: "Give epsilon as a number from 0 to 1.",
      });
    },
    select,
    backup: averageBackup,
    recommend: mostVisits,
  },
);

function select(state: TreeState<EpsilonParams>, choices: Choices): number {
  const { seed, params } = state;
  // The names make the draw: the same node, seen for the n-th time, draws the same number in every run.
  const names = [choices.node, choices.totalVisits + choices.totalInFlight] as const;
  if (drawUniform(seed, "explore", ...names) < params.epsilon) {
    const wanted = drawInteger(seed, choices.free, "which", ...names);
    const free = Array.from({ length: choices.count }, (_, index) => index).filter(
      (index) => choices.blocked[index] === 0,
    );
    return free[wanted] ?? -1;
  }
  return choices.best((index) =>
    allVisits(state, choices, index) === 0 ? Number.POSITIVE_INFINITY : (choices.q[index] as number),
  );
}
