import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  drawSeed,
  drawUniform,
  exportTree,
  type GoExploreOptions,
  goExplore,
  PAPER_ATARI,
  type RolloutOutcome,
} from "./index.js";
import { sipHash24 } from "./siphash.js";

interface GoldenCell {
  readonly cell: string | null;
  readonly node: number;
  readonly seen: number;
  readonly chosen: number;
  readonly chosenSinceNew: number;
  readonly actions: number;
  readonly derivation: string;
  readonly weight: number;
}

interface GoldenStage {
  readonly trial: number | null;
  readonly start: string | null;
  readonly why: string;
  readonly outcomes: readonly RolloutOutcome[];
  readonly released: readonly string[];
  readonly cells: readonly GoldenCell[];
  readonly nodes: readonly Readonly<Record<string, unknown>>[];
}

interface GoldenRun {
  readonly options: GoExploreOptions;
  readonly seed: number;
  readonly stages: readonly GoldenStage[];
}

interface GoldenDraws {
  readonly vectors: readonly string[];
  readonly draws: readonly {
    readonly seed: number;
    readonly names: readonly (number | string)[];
    readonly uniform: number;
    readonly seedDrawn: number;
  }[];
}

function load<Golden>(name: string): Golden {
  return JSON.parse(readFileSync(new URL(`./golden/${name}.json`, import.meta.url), "utf8")) as Golden;
}

describe("draws", () => {
  const golden = load<GoldenDraws>("draws");

  test("siphash, published key and messages of 0 to 63 bytes, published vectors", () => {
    const key = { low0: 0x03020100, high0: 0x07060504, low1: 0x0b0a0908, high1: 0x0f0e0d0c };
    const out = { high: 0, low: 0 };
    const hashes = golden.vectors.map((_, length) => {
      sipHash24(
        key,
        Uint8Array.from({ length }, (_value, index) => index),
        length,
        out,
      );
      return [out.high, out.low].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
    });
    expect(hashes).toEqual(golden.vectors);
  });

  test.each(golden.draws)(
    "draw by seed $seed and names $names, derived values",
    ({ seed, names, uniform, seedDrawn }) => {
      expect(drawUniform(seed, ...names)).toBe(uniform);
      expect(drawSeed(seed, ...names)).toBe(seedDrawn);
    },
  );
});

describe.each([
  ["go-explore", {}],
  ["paper-atari", PAPER_ATARI],
  ["score-high", {}],
])("go-explore, golden run %s", (name, preset) => {
  const golden = load<GoldenRun>(name);

  test("each trial told, cells, counters, weights and nodes as derived by hand", () => {
    const state = goExplore.init({ ...preset, ...golden.options }, golden.seed);
    for (const stage of golden.stages) {
      const released = runStage(state, stage);
      expect({ why: stage.why, released }).toEqual({ why: stage.why, released: stage.released });
      const tree = exportTree(state);
      expect(tree.cells).toEqual(
        stage.cells.map(({ derivation, weight, ...cell }) => {
          return expect.objectContaining({ ...cell, weight: expect.closeTo(weight, 12) as number });
        }),
      );
      expect(tree.nodes).toEqual(stage.nodes.map((node) => expect.objectContaining(node)));
    }
  });
});

function runStage(state: ReturnType<typeof goExplore.init>, stage: GoldenStage): string[] {
  const released: string[] = [];
  for (const [attempt, outcome] of stage.outcomes.entries()) {
    const { trials, changes } = goExplore.ask(state, 1);
    expect(trials).toMatchObject([{ id: stage.trial, attempt, from: { cell: stage.start } }]);
    const told = goExplore.tell(state, stage.trial ?? -1, attempt, outcome);
    released.push(...changes.released, ...told.changes.released);
  }
  return released;
}
