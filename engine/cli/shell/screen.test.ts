import { describe, expect, it } from "vitest";

import { RESET_SCREEN, Screen } from "./screen.js";

function shown(screen: Screen): string {
  return Buffer.from(screen.show()).toString("latin1").replace(RESET_SCREEN, "");
}

describe("a screen that is shown again", () => {
  it("has the line that was not ended, from all of its pieces", () => {
    const screen = new Screen();
    for (const piece of ["motd\n$ l", "s\n", "$ ec", "ho"]) screen.note(Buffer.from(piece));
    expect(shown(screen)).toBe("$ echo");
  });

  it("has what was printed while it was not shown, once", () => {
    const screen = new Screen();
    screen.note(Buffer.from("$ "));
    screen.hide(Buffer.from("one\ntwo\n$ "));
    expect(shown(screen)).toBe("one\ntwo\n$ ");
    expect(shown(screen)).toBe("$ ");
  });

  it("is the alternate one when the program draws there, also where the sequence is cut", () => {
    const screen = new Screen();
    screen.note(Buffer.from("\x1b[?10"));
    screen.note(Buffer.from("49hvim"));
    expect(shown(screen)).toContain("\x1b[?1049h");
    screen.note(Buffer.from("\x1b[?1049l$ "));
    expect(shown(screen)).not.toContain("\x1b[?1049h");
  });

  it("keeps no more than a bounded part of a line that never ends", () => {
    const screen = new Screen();
    for (let piece = 0; piece < 100; piece++) screen.note(Buffer.alloc(1_000, "x"));
    expect(screen.state.line.length).toBeLessThan(10_000);
  });

  it("goes back to how it was at a checkpoint", () => {
    const screen = new Screen();
    screen.note(Buffer.from("$ typed"));
    const { state } = screen;
    screen.note(Buffer.from(" more\nout\n$ "));
    screen.restore(state);
    expect(shown(screen)).toBe("$ typed");
  });
});
