/** What the process tells its caller. */
export const EXIT = Object.freeze({
  done: 0,
  failed: 1,
  usage: 2,
  noHost: 3,
  nothingFound: 4,
  interrupted: 130,
});

/** Codes of errors that are the command line's own fault. */
const USAGE_CODES = new Set(["OPTION_INVALID", "INVALID_ARGUMENT", "IMAGE_SPEC_INVALID"]);

export function exitCodeOf(code: string): number {
  if (code === "ABORTED") return EXIT.interrupted;
  if (code === "NO_USABLE_HOST") return EXIT.noHost;
  return USAGE_CODES.has(code) ? EXIT.usage : EXIT.failed;
}
