import { drawUniform } from "../draws.js";

type Draw = () => number;

/** Uniform draws in (0, 1), the next one at each call: a pure function of seed and names. */
function draws(seed: number, ...names: readonly (string | number)[]): Draw {
  let index = 0;
  return () => {
    index += 1;
    // Half a step away from 0, whose logarithm is not finite.
    return drawUniform(seed, ...names, index) + 2 ** -54;
  };
}

/** Standard normal: polar method of Box and Muller. */
function normal(draw: Draw): number {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

/** Logarithm of a gamma variate of scale 1 (Marsaglia and Tsang 2000); the logarithm, because small shapes give tiny variates. */
function logGamma(shape: number, draw: Draw): number {
  if (shape < 1) return logGamma(shape + 1, draw) + Math.log(draw()) / shape;
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = normal(draw);
    const root = 1 + c * x;
    if (root <= 0) continue;
    const v = root * root * root;
    if (Math.log(draw()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return Math.log(d) + Math.log(v);
  }
}

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

export function softmax(logits: readonly number[]): number[] {
  const largest = logits.reduce((most, logit) => Math.max(most, logit), Number.NEGATIVE_INFINITY);
  const weights = logits.map((logit) => Math.exp(logit - largest));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}
