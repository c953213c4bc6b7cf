/**
 * How often fast-check tries a property: `count` times, each run with other values; `COPPICE_SOAK=20` in the environment makes it
 * 20 times as often, for the nights.
 */
export function runs(count: number): { readonly numRuns: number } {
  const soak = Number(process.env["COPPICE_SOAK"] ?? 1);
  if (!Number.isInteger(soak) || soak < 1)
    throw new RangeError(`COPPICE_SOAK is ${soak}, must be an integer of at least 1`);
  return { numRuns: count * soak };
}
