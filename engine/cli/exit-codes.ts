/** What the process tells its caller; docs/cli.md has the same table. */
export const EXIT = Object.freeze({
  done: 0,
  failed: 1,
  usage: 2,
  noHost: 3,
  nothingFound: 4,
  outputFailed: 5,
  /** Of `exec` and `shell`, which end with the code of a program: what is not the program's, as docker has it. */
  notTheProgram: 125,
  interrupted: 130,
  /** As a program that SIGPIPE has ended, which is how others end when nobody reads them any more. */
  closedPipe: 141,
});

/** Codes of errors that are the command line's own fault. */
const USAGE_CODES = new Set(["OPTION_INVALID", "INVALID_ARGUMENT", "IMAGE_SPEC_INVALID"]);

/** Codes that say why no host can be had. */
const NO_HOST_CODES = new Set(["NO_USABLE_HOST", "TOO_MANY_CONNECTIONS", "UNAUTHENTICATED"]);

/** Commands that end with the exit code of a program in a guest. */
const PROGRAM_COMMANDS = new Set(["exec", "shell"]);

/** Of a command that fails with `code`; undefined: for a reason that nobody has foreseen. */
export function exitCodeOf(code: string | undefined, command?: string): number {
  if (code === "ABORTED") return EXIT.interrupted;
  if (command !== undefined && PROGRAM_COMMANDS.has(command)) return EXIT.notTheProgram;
  if (code === undefined) return EXIT.failed;
  if (NO_HOST_CODES.has(code)) return EXIT.noHost;
  if (code === "OUTPUT_FAILED") return EXIT.outputFailed;
  return USAGE_CODES.has(code) ? EXIT.usage : EXIT.failed;
}
