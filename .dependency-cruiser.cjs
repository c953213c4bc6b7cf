/** The folders are the architecture: who may import whom. See docs/architecture.md. */
module.exports = {
  forbidden: [
    {
      name: "search-is-pure",
      comment: "search imports nothing of ours and does no I/O",
      severity: "error",
      from: { path: "^search/", pathNot: "\\.test\\.ts$" },
      to: { pathNot: "^(search/|node_modules/(seedrandom|@types/seedrandom)/)" },
    },
    {
      name: "pool-below-engine",
      comment: "sandbox-pool knows hosts, not runs or algorithms",
      severity: "error",
      from: { path: "^sandbox-pool/" },
      to: { path: "^(engine|search|examples|index\\.ts)" },
    },
    {
      name: "engine-through-the-front-door",
      comment: "other folders are imported by their index.ts only",
      severity: "error",
      from: { path: "^engine/" },
      to: { path: "^(search|sandbox-pool)/", pathNot: "^(search|sandbox-pool)/index\\.ts$" },
    },
    {
      name: "engine-ignores-examples",
      comment: "examples are ordinary users of the library",
      severity: "error",
      from: { path: "^(engine|search|sandbox-pool|index\\.ts)" },
      to: { path: "^examples/" },
    },
    {
      name: "examples-use-the-public-face",
      comment: "examples import what a user can import",
      severity: "error",
      from: { path: "^examples/", pathNot: "\\.test\\.ts$" },
      to: { path: "^(engine|sandbox-pool|search)/", pathNot: "^search/index\\.ts$" },
    },
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "no-dev-dependencies-in-product",
      severity: "error",
      from: { path: "^(engine|search|sandbox-pool|examples|index\\.ts)", pathNot: "\\.test\\.ts$" },
      to: { dependencyTypes: ["npm-dev"], dependencyTypesNot: ["type-only"] },
    },
    { name: "resolvable", severity: "error", from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "require", "node", "default", "types"],
      extensions: [".ts", ".js", ".mjs", ".json"],
    },
  },
};
