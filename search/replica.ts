import { improves, type Standing } from "./archive.js";
import type { ArchiveState } from "./archive-state.js";
import { invalidArgument } from "./errors.js";
import type { RolloutTrial } from "./rollout.js";

/** What an archive got between two versions; small, and JSON carries it exactly. */
export interface ArchiveDelta {
  readonly from: number;
  readonly to: number;
  readonly optimiseScore: boolean;
  /** Whether candidates are of any use to the search. */
  readonly needsCheckpoint: boolean;
  /** In order of version; a cell may come more than once. */
  readonly entries: readonly (readonly [version: number, cell: string, score: number, length: number])[];
}

/**
 * - `keep`: the state belongs into the archive: make a checkpoint and report it as a candidate.
 * - `pass`: it does not.
 * - `need-score`: it depends on the score; ask again with it.
 */
export type Judgement = "keep" | "pass" | "need-score";

/** A state that a worker has reached. */
export interface Offer {
  readonly cell: string;
  /** Steps from the root. */
  readonly length: number;
  /** Leave it out where finding it is costly. */
  readonly score?: number;
}

/** What entered the archive after version `since`, up to now; `since` 0 gives everything. */
export function archiveDelta(state: ArchiveState, since = 0): ArchiveDelta {
  const { archive, book, config, needsCheckpoint } = state;
  if (!Number.isInteger(since) || since < 0 || since > book.merged) {
    throw invalidArgument("since", since, `a version from 0 to ${book.merged}`);
  }
  const entries: [number, string, number, number][] = [];
  const { trial, cell, score, length } = archive.nodes;
  for (let node = archive.nodeCount - 1; node >= 0 && trial.get(node) >= since - 1; node -= 1) {
    const version = trial.get(node) + 1;
    const key = archive.key(cell.get(node));
    // The root is version 0, and what a trial found is in the version after it.
    if (key !== null && (version > since || since === 0))
      entries.push([version, key, score.get(node), length.get(node)]);
  }
  return {
    from: since,
    to: book.merged,
    optimiseScore: config.optimiseScore,
    needsCheckpoint,
    entries: entries.reverse(),
  };
}

/**
 * A worker's copy of what the archive holds, at all versions: every trial is judged by the version at which it was asked,
 * so that what it keeps depends neither on the worker nor on what has arrived since.
 */
export class ArchiveReplica {
  readonly #cells = new Map<string, (Standing & { readonly version: number })[]>();
  #version = -1;
  #optimiseScore = true;
  #needsCheckpoint = true;

  /** The newest version that it can answer for; -1 before the first delta. */
  get version(): number {
    return this.#version;
  }

  /** Deltas that are known already change nothing. */
  apply(delta: ArchiveDelta): void {
    if (delta.from > Math.max(0, this.#version)) {
      throw invalidArgument("delta.from", delta.from, `at most ${Math.max(0, this.#version)}, what this replica has`);
    }
    this.#optimiseScore = delta.optimiseScore;
    this.#needsCheckpoint = delta.needsCheckpoint;
    for (const [version, cell, score, length] of delta.entries) {
      if (version <= this.#version) continue;
      const history = this.#cells.get(cell);
      const offered = { version, score, length };
      const known = history?.at(-1);
      // In an archive that was divided anew, an older node can be the better one.
      if (known !== undefined && !improves({ offered, known, optimiseScore: delta.optimiseScore })) continue;
      if (history === undefined) this.#cells.set(cell, [offered]);
      else history.push(offered);
    }
    this.#version = Math.max(this.#version, delta.to);
  }

  /** The judge for one attempt of a trial. */
  at(trial: Pick<RolloutTrial, "version">): CandidateJudge {
    if (trial.version > this.#version) {
      throw invalidArgument("trial.version", trial.version, `at most ${this.#version}, what this replica has`);
    }
    const known = (cell: string): Standing | undefined => {
      return this.#cells.get(cell)?.findLast(({ version }) => version <= trial.version);
    };
    return new CandidateJudgeImpl(known, this.#optimiseScore, this.#needsCheckpoint);
  }
}

/** Decides which states of one trial are worth a checkpoint. */
export interface CandidateJudge {
  judge(offer: Offer): Judgement;
  /** A checkpoint of this state was made: later states of the trial are judged by it too. */
  kept(cell: string, standing: Standing): void;
}

class CandidateJudgeImpl implements CandidateJudge {
  readonly #known: (cell: string) => Standing | undefined;
  readonly #optimiseScore: boolean;
  readonly #needsCheckpoint: boolean;
  readonly #own = new Map<string, Standing>();

  constructor(known: (cell: string) => Standing | undefined, optimiseScore: boolean, needsCheckpoint: boolean) {
    this.#known = known;
    this.#optimiseScore = optimiseScore;
    this.#needsCheckpoint = needsCheckpoint;
  }

  judge({ cell, length, score }: Offer): Judgement {
    if (!this.#needsCheckpoint) return "pass";
    const known = this.#own.get(cell) ?? this.#known(cell);
    if (known === undefined) return "keep";
    if (!this.#optimiseScore) return length < known.length ? "keep" : "pass";
    if (score === undefined) return "need-score";
    return improves({ offered: { score, length }, known, optimiseScore: true }) ? "keep" : "pass";
  }

  kept(cell: string, standing: Standing): void {
    this.#own.set(cell, standing);
  }
}
