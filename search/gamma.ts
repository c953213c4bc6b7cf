import { type DrawName, drawUniform } from "./draws.js";

export type Draw = () => number;

/** Uniform draws in (0, 1), the next one at each call: a pure function of seed and names. */
export function draws(seed: number, ...names: readonly DrawName[]): Draw {
  let index = 0;
  return () => {
    index += 1;
    // Half a step away from 0, whose logarithm is not finite.
    return drawUniform(seed, ...names, index) + 2 ** -54;
  };
}

/** Standard normal (Box and Muller 1958). */
export function normal(draw: Draw): number {
  return Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());
}

/** Logarithm of a gamma variate of scale 1 (Marsaglia and Tsang 2000); the logarithm, because small shapes give tiny variates. */
export function logGamma(shape: number, draw: Draw): number {
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

/** A beta variate: how likely success is, after `alpha` - 1 successes and `beta` - 1 failures. */
export function betaVariate(alpha: number, beta: number, draw: Draw): number {
  const one = logGamma(alpha, draw);
  const two = logGamma(beta, draw);
  return 1 / (1 + Math.exp(two - one));
}
