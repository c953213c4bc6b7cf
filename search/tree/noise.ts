import { draws, logGamma } from "../gamma.js";

interface NoiseNames {
  readonly seed: number;
  /** Decisions from the first root to the state that the noise is for. */
  readonly depth: number;
  readonly count: number;
}

/** A point of the symmetric Dirichlet distribution: `count` numbers that add up to 1. */
export function dirichlet(alpha: number, { seed, depth, count }: NoiseNames): number[] {
  const logs: number[] = [];
  for (let index = 0; index < count; index += 1) logs.push(logGamma(alpha, draws(seed, "dirichlet", depth, index)));
  return softmax(logs);
}

/** `count` independent standard Gumbel variates: adding them to logits and taking the greatest draws from the softmax. */
export function gumbels({ seed, depth, count }: NoiseNames): number[] {
  return Array.from({ length: count }, (_, index) => -Math.log(-Math.log(draws(seed, "gumbel", depth, index)())));
}

/** exp(logit) divided by the sum of all; never overflows, because the largest is taken away first. */
export function softmax(logits: readonly number[]): number[] {
  const largest = logits.reduce((most, logit) => Math.max(most, logit), Number.NEGATIVE_INFINITY);
  const weights = logits.map((logit) => Math.exp(logit - largest));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}
