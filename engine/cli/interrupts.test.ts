import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { listenForInterrupts } from "./interrupts.js";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe("interrupts", () => {
  it("take one key that arrives twice, by the terminal and by a wrapper, as one", () => {
    const exit = vi.spyOn(process, "exit").mockReturnValue(undefined as never);
    using interrupts = listenForInterrupts(() => {});
    process.emit("SIGINT", "SIGINT");
    vi.advanceTimersByTime(20);
    process.emit("SIGINT", "SIGINT");
    expect(interrupts.signal.aborted).toBe(true);
    expect(exit).not.toHaveBeenCalled();
    vi.advanceTimersByTime(300);
    process.emit("SIGINT", "SIGINT");
    expect(exit).toHaveBeenCalledWith(130);
  });

  it("are given to who asked for them, once a key", () => {
    using interrupts = listenForInterrupts(() => {});
    const seen: string[] = [];
    using _ = interrupts.redirect((name) => seen.push(name) > 0);
    for (const pause of [10, 400, 10]) {
      process.emit("SIGINT", "SIGINT");
      vi.advanceTimersByTime(pause);
    }
    expect(seen).toEqual(["SIGINT", "SIGINT"]);
    expect(interrupts.signal.aborted).toBe(false);
  });
});
