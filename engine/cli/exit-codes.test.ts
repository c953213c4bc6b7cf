import { expect, test } from "vitest";

import { exitCodeOf } from "./exit-codes.js";

test.each([
  ["HOST_LOST", "ps", 1],
  ["IMAGE_SPEC_INVALID", "image", 2],
  ["NO_USABLE_HOST", "demo", 3],
  ["OUTPUT_FAILED", "cp", 5],
  [undefined, "ps", 1],
  ["HOST_LOST", "exec", 125],
  ["IMAGE_SPEC_INVALID", "exec", 125],
  ["NO_USABLE_HOST", "exec", 125],
  ["OUTPUT_FAILED", "exec", 125],
  [undefined, "shell", 125],
  ["ABORTED", "exec", 130],
])("exit code of %s in %s is %i", (code, command, expected) => {
  expect(exitCodeOf(code, command)).toBe(expected);
});
