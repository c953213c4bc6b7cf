/** What must be known of a guest's screen to show it again after another was shown. */

/** Longest beginning of a line that is shown again: a prompt and what was typed after it. */
const MAX_LINE_BYTES = 4 * 1024;
/** Output of a guest that is not shown now, kept until it is. */
const MAX_HIDDEN_BYTES = 256 * 1024;
/** Longest of the sequences that are looked for, less one: they may be cut between two pieces. */
const OVERLAP_BYTES = 7;

const LINE_FEED = 0x0a;
const ENTER_ALTERNATE = "\x1b[?1049h";
const LEAVE_ALTERNATE = "\x1b[?1049l";
/** Alternate screen, mouse, bracketed paste, hidden cursor, colours: what one guest switched on is not the next one's. */
const RESET = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";

/** A screen at one moment. */
export interface ScreenState {
  /** The line that is not ended: usually the prompt. */
  readonly line: Uint8Array;
  /** Whether a program draws on the whole screen. */
  readonly isAlternate: boolean;
}

export class Screen {
  #line: Uint8Array = new Uint8Array();
  #isAlternate = false;
  #end = "";
  #hidden: Uint8Array = new Uint8Array();

  constructor(state?: ScreenState) {
    if (state !== undefined) this.restore(state);
  }

  get state(): ScreenState {
    return { line: this.#line, isAlternate: this.#isAlternate };
  }

  /** As it was at a checkpoint. */
  restore({ line, isAlternate }: ScreenState): void {
    this.#line = line;
    this.#isAlternate = isAlternate;
    this.#end = "";
    this.#hidden = new Uint8Array();
  }

  /** Notes what a guest prints. */
  note(piece: Uint8Array): void {
    const feed = piece.lastIndexOf(LINE_FEED);
    const line = feed === -1 ? Buffer.concat([this.#line, piece]) : piece.subarray(feed + 1);
    this.#line = Uint8Array.from(afterSwitch(line).subarray(-MAX_LINE_BYTES));
    const text = this.#end + Buffer.from(piece).toString("latin1");
    const [entered, left] = [text.lastIndexOf(ENTER_ALTERNATE), text.lastIndexOf(LEAVE_ALTERNATE)];
    if (entered !== left) this.#isAlternate = entered > left;
    this.#end = text.slice(-OVERLAP_BYTES);
  }

  /** The same of one that is not shown: what it printed is shown when it is. */
  hide(piece: Uint8Array): void {
    this.note(piece);
    this.#hidden = Buffer.concat([this.#hidden, piece]).subarray(-MAX_HIDDEN_BYTES);
  }

  /** What brings a terminal from anything to this screen, as far as it can be known; the program draws the rest. */
  show(): Uint8Array {
    const hidden = this.#hidden;
    this.#hidden = new Uint8Array();
    const start = Buffer.from(this.#isAlternate ? `${RESET}${ENTER_ALTERNATE}\x1b[2J` : RESET);
    return Buffer.concat([start, hidden.length > 0 ? hidden : this.#line]);
  }
}

/** What was printed after the last change between the two screens: the rest is on the other one. */
function afterSwitch(line: Uint8Array): Uint8Array {
  const text = Buffer.from(line).toString("latin1");
  const at = Math.max(text.lastIndexOf(ENTER_ALTERNATE), text.lastIndexOf(LEAVE_ALTERNATE));
  return at === -1 ? line : line.subarray(at + ENTER_ALTERNATE.length);
}

/** Leaves the terminal as a shell expects it. */
export const RESET_SCREEN = RESET;
