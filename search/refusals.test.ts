import { describe, expect, test } from "vitest";
import {
  ArchiveReplica,
  type ArchiveState,
  archiveDelta,
  chooseAction,
  drawInteger,
  drawUniform,
  exportTree,
  type GoExploreOptions,
  goExplore,
  type RandomRolloutsOptions,
  type RolloutOutcome,
  randomRollouts,
  SearchError,
} from "./index.js";

const root = { cell: "R" };

function refusal(action: () => unknown): Pick<SearchError, "code" | "field"> {
  try {
    action();
  } catch (error) {
    if (!(error instanceof SearchError)) throw error;
    expect(error.message).not.toBe("");
    expect(error.remedy).not.toBe("");
    return { code: error.code, field: error.field };
  }
  throw new Error("Nothing was refused");
}

describe("configuration", () => {
  const long = "x".repeat(4_097);
  const cases: [field: string, options: unknown][] = [
    ["options", null],
    ["root", {}],
    ["root.cell", { root: {} }],
    ["root.cell", { root: { cell: long } }],
    ["root.score", { root: { cell: "R", score: Number.NaN } }],
    ["root.checkpoint", { root: { cell: "R", checkpoint: 5 } }],
    ["root.landmarks", { root: { cell: "R", landmarks: "hall" } }],
    ["root.landmarks.room", { root: { cell: "R", landmarks: { room: 1 } } }],
    ["root.sell", { root: { cell: "R", sell: "R" } }],
    ["stepsPerTrial", { root, stepsPerTrial: 0 }],
    ["stepsPerTrial", { root, stepsPerTrial: "8" }],
    ["window", { root, window: 65_537 }],
    ["maxAttempts", { root, maxAttempts: 1.5 }],
    ["maxNodes", { root, maxNodes: Number.POSITIVE_INFINITY }],
    ["maxLength", { root, maxLength: -1 }],
    ["maxSteps", { root, maxSteps: Number.NaN }],
    ["maxTrials", { root, maxTrials: 0 }],
    ["optimiseScore", { root, optimiseScore: "yes" }],
    ["stepPerTrial", { root, stepPerTrial: 5 }],
    ["weights", { root, weights: 3 }],
    ["weights.seem", { root, weights: { seem: { weight: 1, power: 1 } } }],
    ["weights.seen", { root, weights: { seen: 1 } }],
    ["weights.seen.weight", { root, weights: { seen: { weight: -1, power: 1 } } }],
    ["weights.chosen.power", { root, weights: { chosen: { weight: 1, power: 17 } } }],
    ["weights.actions.power", { root, weights: { actions: { weight: 1 } } }],
    ["weights.scoreHigh", { root, weights: { scoreHigh: Number.NaN } }],
    ["resetCellOnUpdate", { root, resetCellOnUpdate: 1 }],
    ["countInFlight", { root, countInFlight: 0 }],
  ];

  test.each(cases)("go-explore with a wrong %s, refused by that name", (field, options) => {
    expect(refusal(() => goExplore.init(options as GoExploreOptions, 1))).toEqual({ code: "INVALID_ARGUMENT", field });
  });

  test.each(["weights", "resetCellOnUpdate", "countInFlight"])("random rollouts with %s, refused", (field) => {
    const options = { root, [field]: {} } as RandomRolloutsOptions;
    expect(refusal(() => randomRollouts.init(options, 1))).toEqual({ code: "INVALID_ARGUMENT", field });
  });

  test.each([-1, 0.5, Number.NaN, 2 ** 53, "7"])("seed %s, refused", (seed) => {
    expect(refusal(() => goExplore.init({ root }, seed as number))).toEqual({
      code: "INVALID_ARGUMENT",
      field: "seed",
    });
  });
});

describe("arguments", () => {
  test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])("count %s of ask and forecast, refused", (count) => {
    const state = goExplore.init({ root }, 1);
    expect(refusal(() => goExplore.ask(state, count)).field).toBe("count");
    expect(refusal(() => goExplore.forecast(state, count)).field).toBe("count");
  });

  test.each([-1, 1, 0.5])("path to node %s where only the root is, refused", (node) => {
    expect(refusal(() => goExplore.path(goExplore.init({ root }, 1), node)).field).toBe("node");
  });

  test("draws with a name that is no safe integer, or a count out of range, refused", () => {
    expect(refusal(() => drawUniform(1, 0.5)).field).toBe("name");
    expect(refusal(() => drawUniform(-1)).field).toBe("seed");
    for (const count of [0, 2 ** 32 + 1, 1.5]) expect(refusal(() => drawInteger(1, count)).field).toBe("count");
  });

  test("policy without actions or with runs shorter than 1, refused", () => {
    expect(refusal(() => chooseAction({ seed: 1, step: 0, actions: [] })).field).toBe("actions");
    expect(refusal(() => chooseAction({ seed: 1, step: 0, actions: ["a"], meanRepeat: 0.5 })).field).toBe("meanRepeat");
  });

  test("replica that lacks what came before a delta or a trial, refused", () => {
    const state = goExplore.init({ root, window: 1 }, 1);
    goExplore.ask(state, 1);
    goExplore.tell(state, 0, 0, { kind: "rejected", reason: "" });
    expect(refusal(() => archiveDelta(state, 2)).field).toBe("since");
    expect(refusal(() => new ArchiveReplica().apply(archiveDelta(state, 1))).field).toBe("delta.from");
    expect(refusal(() => new ArchiveReplica().at({ version: 0 })).field).toBe("trial.version");
  });
});

describe("outcomes", () => {
  const good = { action: "go", reward: 0, cell: "A", terminated: false };
  const kept = { ...good, candidate: { checkpoint: "c" } };
  const cases: [field: string, visits: unknown][] = [
    ["visits", "none"],
    ["visits.length", [good, good, good]],
    ["visits[0]", [null]],
    ["visits[1]", [{ ...good, terminated: true }, good]],
    ["visits[0].action", [{ ...good, action: 1 }]],
    ["visits[0].cell", [{ ...good, cell: "x".repeat(4_097) }]],
    ["visits[1].reward", [good, { ...good, reward: Number.NaN }]],
    ["visits[0].reward", [{ ...good, reward: Number.NEGATIVE_INFINITY }]],
    [
      "visits[1].reward",
      [
        { ...good, reward: 1e308 },
        { ...good, reward: 1e308 },
      ],
    ],
    ["visits[0].terminated", [{ ...good, terminated: 0 }]],
    ["visits[0].score", [{ ...good, score: Number.POSITIVE_INFINITY }]],
    ["visits[0].candidate", [{ ...good, candidate: "c" }]],
    ["visits[0].candidate.checkpoint", [{ ...good, candidate: {} }]],
    ["visits[1].candidate.checkpoint", [kept, kept]],
    ["visits[0].candidate.checkpoint", [{ ...good, candidate: { checkpoint: "root" } }]],
    ["visits[0].candidate.checkpoint", [{ ...good, candidate: { checkpoint: "taken" } }]],
    ["visits[0].landmarks", [{ ...good, landmarks: "hall" }]],
    ["visits[0].landmarks.room", [{ ...good, landmarks: { room: 7 } }]],
  ];

  function asked(): ArchiveState {
    const state = goExplore.init({ root: { cell: "R", checkpoint: "root" }, stepsPerTrial: 2, window: 2 }, 1);
    goExplore.ask(state, 2);
    const visits = [{ ...good, candidate: { checkpoint: "taken" } }];
    goExplore.tell(state, 1, 0, { kind: "value", visits });
    return state;
  }

  test.each(cases)("outcome with a wrong %s, refused by that name and nothing changed", (field, visits) => {
    const state = asked();
    const before = JSON.stringify(goExplore.serialise(state));
    const outcome = { kind: "value", visits } as RolloutOutcome;
    expect(refusal(() => goExplore.tell(state, 0, 0, outcome))).toEqual({ code: "INVALID_OUTCOME", field });
    expect(JSON.stringify(goExplore.serialise(state))).toBe(before);
    expect(goExplore.tell(state, 0, 0, { kind: "value", visits: [good] }).verdict).toBe("merged");
  });

  test("outcome of an unknown kind, refused", () => {
    const outcome = { kind: "success" } as unknown as RolloutOutcome;
    expect(refusal(() => goExplore.tell(asked(), 0, 0, outcome))).toEqual({ code: "INVALID_OUTCOME", field: "kind" });
  });

  test.each([
    [2, 0],
    [-1, 0],
    [0.5, 0],
    [0, 1],
    [0, -1],
    [0, Number.NaN],
  ])("outcome of trial %s, attempt %s, that was never asked, refused", (trial, attempt) => {
    const state = asked();
    const tell = (): unknown => goExplore.tell(state, trial, attempt, { kind: "rejected", reason: "" });
    expect(refusal(tell).code).toBe("UNKNOWN_TRIAL");
  });

  test("rewards of 1e308 that stay finite, accepted", () => {
    const state = goExplore.init({ root, stepsPerTrial: 2, window: 1 }, 1);
    goExplore.ask(state, 1);
    const visits = [
      { ...kept, reward: 1e308 },
      { ...good, cell: "B", reward: -1e308, candidate: { checkpoint: "d" } },
    ];
    goExplore.tell(state, 0, 0, { kind: "value", visits });
    expect(exportTree(state).nodes.map(({ score }) => score)).toEqual([0, 1e308, 0]);
  });
});

describe("serialised states", () => {
  type Serialised = ReturnType<typeof goExplore.serialise> & Record<string, never>;
  const state = goExplore.init({ root, window: 2 }, 1);
  goExplore.ask(state, 2);
  goExplore.tell(state, 1, 0, {
    kind: "value",
    visits: [{ action: "go", reward: 0, cell: "A", terminated: false, landmarks: { room: "hall" } }],
  });
  const text = JSON.stringify(goExplore.serialise(state));

  const damages: [what: string, damage: (data: Serialised) => unknown][] = [
    ["null", () => null],
    ["an empty object", () => ({})],
    ["another format", (data) => ({ ...data, format: 2 })],
    ["no seed", (data) => ({ ...data, seed: undefined })],
    ["no weights", (data) => ({ ...data, config: { ...data["config"], weights: undefined } })],
    ["a cell column too short", (data) => set(data, "archive.cells.seen", [0])],
    ["a node column of strings", (data) => set(data, "archive.nodes.score", ["0"])],
    ["a node of a cell that does not exist", (data) => set(data, "archive.nodes.cell", [9])],
    ["a root with a parent", (data) => set(data, "archive.nodes.parent", [0])],
    ["a best node that does not exist", (data) => set(data, "archive.best", 7)],
    ["trials out of order", (data) => set(data, "book.open.0.id", 4)],
    ["an unknown phase", (data) => set(data, "book.open.0.phase", "lost")],
    ["a settled trial without outcome", (data) => set(data, "book.open.1.outcome", null)],
    ["an outcome of an unknown kind", (data) => set(data, "book.open.1.outcome.kind", "won")],
    ["a reward that is no number", (data) => set(data, "book.open.1.outcome.visits.0.reward", null)],
    ["a landmark without key", (data) => set(data, "book.open.1.outcome.visits.0.landmarks", [["room"]])],
  ];

  test.each(damages)("state with %s, refused", (_what, damage) => {
    const data = damage(JSON.parse(text) as Serialised);
    expect(refusal(() => goExplore.restore(data)).code).toBe("INCOMPATIBLE_STATE");
  });

  test("state of another search, refused", () => {
    expect(refusal(() => randomRollouts.restore(JSON.parse(text))).code).toBe("INCOMPATIBLE_STATE");
  });

  test("state that is whole, restored", () => {
    expect(JSON.stringify(goExplore.serialise(goExplore.restore(JSON.parse(text))))).toBe(text);
  });
});

/** Changes the value at a path with dots in place, and returns the whole. */
function set(data: unknown, path: string, value: unknown): unknown {
  const keys = path.split(".");
  const last = keys.pop() ?? "";
  const parent = keys.reduce((at, key) => (at as Record<string, unknown>)[key], data) as Record<string, unknown>;
  parent[last] = value;
  return data;
}
