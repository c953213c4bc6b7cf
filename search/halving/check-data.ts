import { COUNT, DataCheck } from "../data-check.js";
import type { HalvingConfig } from "./config.js";
import type { Judgement, SerialisedHalving } from "./halving-state.js";
import type { Candidate } from "./ladder.js";

export const HALVING_FORMAT = 1;

/**
 * Whether a value can be what `serialise` returned: every index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialisedHalving(serialised: unknown, name: string): SerialisedHalving {
  return new HalvingCheck(name).state(serialised);
}

class HalvingCheck extends DataCheck {
  state(value: unknown): SerialisedHalving {
    const state = this.header<SerialisedHalving>(value, HALVING_FORMAT);
    const rungs = this.list(this.object<HalvingConfig>(state.config, "config").rungs, "config.rungs");
    this.numbers(rungs, rungs.length, "config.rungs");
    this.indexes([state.steps], COUNT, "steps");
    const candidates = this.list(state.candidates, "candidates");
    for (const entry of candidates) {
      const { rung, standing, score, checkpoint, past } = this.object<Candidate>(entry, "candidates");
      this.indexes([rung], { from: 0, to: rungs.length }, "candidates.rung");
      if (!["running", "judged", "out"].includes(standing as string))
        throw this.incompatible("has an unknown standing");
      this.numbers([score ?? 0], 1, "candidates.score");
      this.strings([checkpoint ?? ""], "candidates.checkpoint");
      this.numbers(past, this.list(past, "candidates.past").length, "candidates.past");
    }
    for (const [record, field] of this.book(state.book)) {
      this.indexes([record["candidate"]], { from: 0, to: candidates.length }, `${field}.candidate`);
      this.indexes([record["rung"]], { from: 0, to: rungs.length }, `${field}.rung`);
      if (record["outcome"] === null) continue;
      const { kind, score, checkpoint } = this.object<Judgement>(record["outcome"], `${field}.outcome`);
      if (kind !== "value") continue;
      this.numbers([score], 1, `${field}.outcome.score`);
      this.strings([checkpoint ?? ""], `${field}.outcome.checkpoint`);
    }
    return value as SerialisedHalving;
  }
}
