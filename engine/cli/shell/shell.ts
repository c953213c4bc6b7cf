/** A shell that branches: several sandboxes, one of them on the screen, and the commands that fork, rewind and switch. */

import { CoppiceError, type PtyExit, type Sandbox, type Template } from "../../../sandbox-pool/index.js";
import { KeyReader, type Typed } from "./keys.js";
import { type Mark, Place, type TerminalSize } from "./place.js";

export interface ShellOptions {
  readonly template: Template;
  readonly argv: readonly string[];
  readonly user: string | undefined;
  readonly term: string;
  /** To the person's terminal. */
  readonly write: (bytes: Uint8Array) => void;
  readonly size: () => TerminalSize;
  /** How a program's end becomes the command's exit code. */
  readonly exitCode: (exit: PtyExit) => number;
}

const HELP = [
  "Ctrl-] and then:",
  "  c  take a checkpoint of this sandbox, which goes on",
  "  f  fork into its last checkpoint (one is taken where there is none): you are in the fork, this one stays",
  "  r  rewind this sandbox to its last checkpoint",
  "  s  switch to the next sandbox",
  "  l  list sandboxes and checkpoints",
  "  q  leave: all of them end",
  "  Ctrl-] once more: type it in the guest",
] as const;

export class Shell {
  readonly #options: ShellOptions;
  readonly #keys = new KeyReader();
  readonly #places: Place[] = [];
  readonly #marks: Mark[] = [];
  #current: Place | undefined;
  #placeCount = 0;
  /** One thing after the other: text typed after a command is for where the command leads. */
  #queue: Promise<void> = Promise.resolve();
  #finish: (exitCode: number) => void = () => undefined;
  #fail: (error: CoppiceError) => void = () => undefined;
  readonly #finished = new Promise<number>((resolve, reject) => {
    this.#finish = resolve;
    this.#fail = reject;
  });

  constructor(options: ShellOptions) {
    this.#options = options;
    // It may fail before anybody waits for it.
    this.#finished.catch(() => undefined);
  }

  /** Until the person leaves or the last program ends; gives the exit code. Throws what the host was lost by. */
  async run(sandbox: Sandbox): Promise<number> {
    this.#say("a fresh microVM; Ctrl-] h for help, Ctrl-] q to leave");
    const place = this.#addPlace(sandbox, undefined);
    this.#current = place;
    await place.begin(this.#options.size());
    return await this.#finished;
  }

  type(bytes: Uint8Array): void {
    for (const typed of this.#keys.read(bytes)) this.#enqueue(() => this.#take(typed));
  }

  resized(): void {
    this.#enqueue(async () => await this.#current?.resize(this.#options.size()));
  }

  /** Ends it from outside. */
  end(exitCode: number): void {
    this.#finish(exitCode);
  }

  /** The host is gone, and with it everything that could be on the screen. */
  hostEnded(reason: CoppiceError): void {
    this.#fail(
      new CoppiceError(`The host of this shell has ended, and all its sandboxes with it: ${reason.message}`, {
        code: "HOST_LOST",
        faultDomain: "host",
        retryable: true,
        remedy: "Run `coppice shell` again: it starts a host where none runs.",
        cause: reason,
      }),
    );
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#places.map((place) => place.close()));
    await Promise.allSettled(this.#marks.map((mark) => mark.checkpoint.release()));
  }

  #enqueue(work: () => Promise<void>): void {
    this.#queue = this.#queue.then(work).catch((error: unknown) => {
      this.#say(`that failed: ${error instanceof Error ? error.message : String(error)}`);
      this.#reshow();
    });
  }

  async #take(typed: Typed): Promise<void> {
    const place = this.#current;
    if (place === undefined) return;
    if (typed.kind === "text") await place.write(typed.bytes);
    else await this.#command(typed.key, place);
  }

  async #command(key: string, place: Place): Promise<void> {
    switch (key) {
      case "c":
        await this.#checkpoint(place);
        return this.#reshow();
      case "f":
        return await this.#fork(place);
      case "r":
        return await this.#rewind(place);
      case "s":
        return this.#switch(place);
      case "l":
        this.#list();
        return this.#reshow();
      case "q":
        return this.#finish(0);
      default:
        this.#say(HELP.join("\r\n"));
        return this.#reshow();
    }
  }

  async #checkpoint(place: Place): Promise<Mark> {
    const name = `c${this.#marks.length + 1}`;
    const screen = place.screen.state;
    const checkpoint = await place.sandbox.checkpoint({ name });
    const mark = { name, checkpoint, from: place.name, screen };
    this.#marks.push(mark);
    place.mark = mark;
    this.#say(`checkpoint ${name} (${checkpoint.id}) of sandbox ${place.name}`);
    return mark;
  }

  async #fork(place: Place): Promise<void> {
    const mark = place.mark ?? (await this.#checkpoint(place));
    const sandbox = await mark.checkpoint.fork();
    const forked = this.#addPlace(sandbox, mark);
    this.#say(`sandbox ${forked.name} (${sandbox.id}), forked from ${mark.name}; sandbox ${place.name} stays`);
    this.#current = forked;
    await forked.begin(this.#options.size());
    this.#reshow();
  }

  async #rewind(place: Place): Promise<void> {
    const to = place.mark?.name ?? "its start";
    await place.rewind(this.#options.size());
    this.#say(`sandbox ${place.name} is back at ${to}, as ${place.sandbox.id}`);
    this.#reshow();
  }

  #switch(place: Place): void {
    const next = this.#places[(this.#places.indexOf(place) + 1) % this.#places.length] ?? place;
    this.#current = next;
    this.#say(next === place ? `sandbox ${place.name} is the only one` : `sandbox ${next.name} (${next.sandbox.id})`);
    this.#reshow();
  }

  #list(): void {
    this.#say("sandboxes:");
    for (const place of this.#places) {
      const here = place === this.#current ? "*" : " ";
      const from = place.mark === undefined ? "from the image" : `at or after ${place.mark.name}`;
      this.#line(`${here} ${place.name}  ${place.sandbox.id}  ${from}${place.hasEnded ? ", has ended" : ""}`);
    }
    this.#line(this.#marks.length === 0 ? "no checkpoints yet" : "checkpoints:");
    for (const { name, checkpoint, from } of this.#marks) {
      this.#line(`  ${name}  ${checkpoint.id}  of sandbox ${from}, ${checkpoint.dirtyPages} pages`);
    }
  }

  #addPlace(sandbox: Sandbox, mark: Mark | undefined): Place {
    this.#placeCount += 1;
    const place = new Place({
      name: String(this.#placeCount),
      sandbox,
      mark,
      argv: this.#options.argv,
      term: this.#options.term,
      user: this.#options.user,
      events: {
        onOutput: (from, piece) => this.#output(from, piece),
        onEnd: (from, end) => this.#enqueue(() => this.#ended(from, end)),
      },
    });
    this.#places.push(place);
    return place;
  }

  #output(place: Place, piece: Uint8Array): void {
    if (place !== this.#current) {
      place.screen.hide(piece);
      return;
    }
    place.screen.note(piece);
    this.#options.write(piece);
  }

  async #ended(place: Place, end: PtyExit | CoppiceError): Promise<void> {
    if ("code" in end) {
      this.#say(`sandbox ${place.name}: ${end.message}. Ctrl-] r rewinds it, Ctrl-] s switches, Ctrl-] q leaves.`);
      return;
    }
    this.#places.splice(this.#places.indexOf(place), 1);
    await place.close();
    const next = this.#places.at(-1);
    if (next === undefined) {
      this.#finish(this.#options.exitCode(end));
      return;
    }
    if (place !== this.#current) return;
    this.#current = next;
    this.#say(`sandbox ${place.name} has ended; this is sandbox ${next.name}`);
    this.#reshow();
  }

  /** Brings the current sandbox's screen back after something else was written. */
  #reshow(): void {
    const place = this.#current;
    if (place === undefined || place.hasEnded) return;
    this.#options.write(place.screen.show());
    // Its screen is shown already; what keeps its program from drawing anew is told when it next is asked for something.
    place.redraw(this.#options.size()).catch(() => undefined);
  }

  #say(text: string): void {
    this.#options.write(Buffer.from("\r\n"));
    this.#line(`[coppice] ${text}`);
  }

  #line(text: string): void {
    this.#options.write(Buffer.from(`${text}\r\n`));
  }
}
