import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";

import { abortError, onAbort } from "./abort.js";

describe("onAbort", () => {
  it("for many calls on one signal adds a single listener and calls all of them", () => {
    const controller = new AbortController();
    const called: number[] = [];
    for (let index = 0; index < 20; index += 1) {
      onAbort(controller.signal, () => called.push(index));
    }
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
    controller.abort();
    expect(called).toEqual(Array.from({ length: 20 }, (_, index) => index));
  });

  it("taken off is not called, also when that happens during the abort", () => {
    const controller = new AbortController();
    const called: string[] = [];
    const off = onAbort(controller.signal, () => called.push("first"));
    off();
    off();
    onAbort(controller.signal, () => called.push("second"));
    controller.abort();
    expect(called).toEqual(["second"]);
  });
});

describe("abortError", () => {
  it("keeps the signal's reason as its cause", () => {
    const reason = new Error("enough");
    expect(abortError("Fork", AbortSignal.abort(reason))).toMatchObject({ code: "ABORTED", cause: reason });
  });
});
