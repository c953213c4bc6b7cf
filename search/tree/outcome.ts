import { isKey } from "../config.js";
import { invalidOutcome } from "../errors.js";
import { checkActions, checkPriors } from "./actions.js";
import type { TreeConfig } from "./config.js";

/** Do one action from a node. */
export interface TreeTrial {
  /** 0, 1, 2, … in the order of asking. */
  readonly id: number;
  /** 0, then one more each time the trial is given again after an infrastructure failure. */
  readonly attempt: number;
  readonly from: {
    readonly node: number;
    readonly checkpoint: string | null;
    readonly key: string | null;
    /** Decisions from the first root. */
    readonly depth: number;
  };
  /** null: propose one that is not tried yet (see `children`) and take it. */
  readonly action: string | null;
  /** What earlier trials left to be known here, the latest last; empty where the algorithm hands nothing on. */
  readonly notes: readonly string[];
  /** Seed for everything that is drawn in this trial, a rollout for instance; the same for every attempt. */
  readonly seed: number;
}

/** The state that an action led to. All rewards and values are player 0's. */
export interface StepResult {
  readonly kind: "value";
  /** What was proposed; only where the trial's action is null. */
  readonly action?: string;
  readonly reward: number;
  /** The environment has ended: nothing can follow, and there is no `value`. */
  readonly terminated: boolean;
  /** What the state is worth from here on, by a model or by a rollout. */
  readonly value?: number;
  /** As for `TreeRoot`. */
  readonly actions?: readonly string[];
  readonly priors?: readonly number[];
  readonly mask?: readonly boolean[];
  readonly player?: 0 | 1;
  /** Equal for equal states. Needed where the search is stochastic. */
  readonly key?: string;
  /** Kept with the state, and handed on where the algorithm says so: a reflection on what went wrong, for instance. */
  readonly note?: string;
  /** Where the state is kept. Every checkpoint has a name of its own. */
  readonly checkpoint?: string;
}

export type TreeOutcome =
  | StepResult
  /** Nothing was learned: the trial is given again, or forgotten after `maxAttempts`. */
  | { readonly kind: "infrastructure-failure"; readonly reason: string }
  /** The action can not be taken, or nothing was proposed: it is not tried again. */
  | { readonly kind: "rejected"; readonly reason: string };

/** A result, checked and copied. */
export interface RecordedStep {
  readonly kind: "value";
  readonly action: string | null;
  readonly reward: number;
  readonly terminated: boolean;
  readonly value: number;
  readonly actions: readonly string[] | null;
  readonly priors: readonly number[] | null;
  readonly player: 0 | 1;
  readonly key: string | null;
  readonly note: string | null;
  readonly checkpoint: string | null;
}

interface StepLimits {
  readonly config: TreeConfig;
  readonly isProposal: boolean;
  readonly isHeld: (checkpoint: string) => boolean;
}

/** @throws SearchError `INVALID_OUTCOME` naming the field. */
export function recordStep(step: StepResult, { config, isProposal, isHeld }: StepLimits): RecordedStep {
  const { reward, terminated, key, note, checkpoint } = step;
  if (!Number.isFinite(reward)) throw invalidOutcome("reward", reward, "a finite number");
  if (typeof terminated !== "boolean") throw invalidOutcome("terminated", terminated, "true or false");
  if (isProposal !== (step.action !== undefined))
    throw invalidOutcome("action", step.action, isProposal ? "what was proposed" : "left out: the trial had one");
  checkText("action", step.action);
  checkText("key", key);
  checkText("note", note);
  checkText("checkpoint", checkpoint);
  if (config.stochastic && key === undefined) throw invalidOutcome("key", key, "given: the search is stochastic");
  if (checkpoint !== undefined && isHeld(checkpoint))
    throw invalidOutcome("checkpoint", checkpoint, "a name that no other checkpoint has");
  const value = checkValue(step, config);
  const { actions, priors } = checkOffered(step, config);
  return {
    kind: "value",
    action: step.action ?? null,
    reward,
    terminated,
    value,
    actions,
    priors,
    player: checkPlayer(step, config),
    key: key ?? null,
    note: note ?? null,
    checkpoint: checkpoint ?? null,
  };
}

function checkText(field: string, text: string | undefined): void {
  if (text !== undefined && !isKey(text)) throw invalidOutcome(field, text, "a short string");
}

function checkValue({ terminated, value, reward }: StepResult, config: TreeConfig): number {
  if (terminated && value !== undefined && value !== 0)
    throw invalidOutcome("value", value, "0 or left out: nothing follows the end");
  const worth = terminated ? 0 : value;
  if (worth === undefined || !Number.isFinite(worth)) throw invalidOutcome("value", value, "a finite number");
  if (config.range !== "observed") {
    const [lowest, highest] = config.range;
    const whole = reward + config.discount * worth;
    // A reward along the way may lie outside as long as the return does not; rounding is forgiven.
    const slack = 1e-9 * (highest - lowest);
    if (!(whole >= lowest - slack && whole <= highest + slack))
      throw invalidOutcome(
        "value",
        worth,
        `such that the return is from ${lowest} to ${highest}, the range of the search`,
      );
  }
  return worth;
}

function checkOffered(step: StepResult, config: TreeConfig): Pick<RecordedStep, "actions" | "priors"> {
  if (step.terminated) return { actions: [], priors: null };
  if (step.actions === undefined && !config.proposals)
    throw invalidOutcome("actions", undefined, "an array: the search makes no proposals");
  return { actions: checkActions(step, invalidOutcome), priors: checkPriors(step, invalidOutcome) };
}

function checkPlayer({ player, terminated }: StepResult, { players }: TreeConfig): 0 | 1 {
  if (players === 1 && (player ?? 0) !== 0)
    throw invalidOutcome("player", player, "0 or left out: there is one player");
  if (player === undefined && players === 2 && !terminated) throw invalidOutcome("player", player, "0 or 1");
  if (player !== undefined && player !== 0 && player !== 1) throw invalidOutcome("player", player, "0 or 1");
  return player ?? 0;
}
