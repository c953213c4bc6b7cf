import { checkKeys, integer, real } from "./check-options.js";
import { checkSeed } from "./draws.js";
import { invalidArgument } from "./errors.js";

/** Every default of dynamic cells: what Go-Explore's scripts for Atari pass (their code's own defaults are .03 and 100). */
export const CELL_DEFAULTS = {
  /** `cell_split_factor`: wanted cells for each sample. */
  splitFactor: 0.125,
  /** `split_iterations`: candidates that are tried. */
  iterations: 3_000,
} as const;

/** What `searchCells` chooses among, and by. */
export interface CellSearchOptions<Sample, Parameters> {
  /** States that were met lately; at least one. Go-Explore's code keeps 10,000. */
  readonly samples: readonly Sample[];
  /** The candidate of that number, drawn by names from the seed (see `drawUniform`): a pure function. */
  readonly candidate: (seed: number, index: number) => Parameters;
  /** The cell of a sample under a candidate. */
  readonly cellOf: (parameters: Parameters, sample: Sample) => string;
  /** Candidates to try. Default 3,000. */
  readonly iterations?: number;
  /** Above 0. Default .125. */
  readonly splitFactor?: number;
}

/** The best candidate. */
export interface CellSearchResult<Parameters> {
  readonly parameters: Parameters;
  /** Its number. */
  readonly index: number;
  readonly score: number;
  /** Different cells among the samples. */
  readonly cells: number;
}

const KNOWN = new Set(["samples", "candidate", "cellOf", "iterations", "splitFactor"]);

/**
 * How well a division into cells suits samples that were met: the entropy of their distribution over the cells, divided by its maximum, so
 * that it is 1 where all cells have equally many; divided by sqrt(|n - T| / T + 1), so that about T cells are wanted, T being `splitFactor` times
 * the number of samples. From 0 to 1; 0 for a single cell.
 *
 * @param counts Samples in each cell, above 0.
 * @throws SearchError `INVALID_ARGUMENT`
 */
export function cellScore(counts: readonly number[], splitFactor: number = CELL_DEFAULTS.splitFactor): number {
  real("splitFactor", splitFactor, splitFactor, { from: Number.MIN_VALUE, to: 1e6 });
  let total = 0;
  for (const [index, count] of counts.entries())
    total += integer(`counts[${index}]`, count, Number.NaN, Number.MAX_SAFE_INTEGER);
  if (total === 0) throw invalidArgument("counts", counts, "a list of at least one count");
  const cells = counts.length;
  if (cells === 1) return 0;
  let entropy = 0;
  for (const count of counts) entropy -= (count / total) * Math.log(count / total);
  const wanted = splitFactor * total;
  return entropy / Math.log(cells) / Math.sqrt(Math.abs(cells - wanted) / wanted + 1);
}

/**
 * Finds a division into cells by trying candidates: the one with the greatest `cellScore`, of equals the first. Equal seeds and samples
 * give equal results.
 *
 * Source: Ecoffet and others, Nature 590, 580-586 (2021), "dynamic cell representation".
 *
 * @throws SearchError `INVALID_ARGUMENT`
 */
export function searchCells<Sample, Parameters>(
  options: CellSearchOptions<Sample, Parameters>,
  seed: number,
): CellSearchResult<Parameters> {
  checkKeys(options, KNOWN, "");
  checkSeed(seed);
  const { samples, candidate, cellOf } = options;
  const iterations = integer("iterations", options.iterations, CELL_DEFAULTS.iterations, Number.MAX_SAFE_INTEGER);
  const splitFactor = options.splitFactor ?? CELL_DEFAULTS.splitFactor;
  if (samples.length === 0) throw invalidArgument("samples", samples, "a list of at least one sample");
  let best: CellSearchResult<Parameters> | null = null;
  for (let index = 0; index < iterations; index += 1) {
    const parameters = candidate(seed, index);
    const counts = new Map<string, number>();
    for (const sample of samples) {
      const cell = cellOf(parameters, sample);
      counts.set(cell, (counts.get(cell) ?? 0) + 1);
    }
    const score = cellScore([...counts.values()], splitFactor);
    if (best === null || score > best.score) best = { parameters, index, score, cells: counts.size };
  }
  return best as CellSearchResult<Parameters>;
}
