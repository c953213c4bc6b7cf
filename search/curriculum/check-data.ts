import { COUNT, DataCheck } from "../data-check.js";
import type { SerialisedBackward } from "./backward-state.js";
import type { BackwardConfig } from "./config.js";

export const BACKWARD_FORMAT = 1;

/**
 * Whether a value can be what `serialise` returned: every index is checked; what the numbers say is not.
 *
 * @throws SearchError `INCOMPATIBLE_STATE`
 */
export function checkSerialisedBackward(serialised: unknown, name: string): SerialisedBackward {
  return new BackwardCheck(name).state(serialised);
}

class BackwardCheck extends DataCheck {
  state(value: unknown): SerialisedBackward {
    const state = this.header<SerialisedBackward>(value, BACKWARD_FORMAT);
    const { length } = this.list(
      this.object<BackwardConfig>(state.config, "config").demonstration,
      "config.demonstration",
    );
    this.indexes([state.at], { from: -1, to: length }, "at");
    this.indexes([state.played, state.succeeded], COUNT, "played and succeeded");
    for (const [record, field] of this.book(state.book))
      this.indexes([record["start"]], { from: 0, to: length }, `${field}.start`);
    return value as SerialisedBackward;
  }
}
