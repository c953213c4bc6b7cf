/** What to do about failures that come without a remedy: agents and VMMs send a code and a message only. */

import { CoppiceError } from "./errors.js";

/** For errors that are ours. */
export const REPORT = "This is a mistake of Coppice's own: report it, with the message and what you did.";

const CLOSE_AND_FORK = "Close the sandbox and fork its checkpoint again.";
const SAME_RELEASE = "Use client, daemon and guests of one release: `coppice host stop`, then start again.";
const RUN_ANEW = "Run it again where it is still wanted.";

const REMEDIES: Readonly<Record<string, string>> = Object.freeze({
  ABORTED: RUN_ANEW,
  AGENT_FAILED: CLOSE_AND_FORK,
  CANCELLED: RUN_ANEW,
  CHECKPOINT_FAILED: "Try again; the sandbox goes on where the message says nothing else.",
  EXEC_CWD_INVALID: "Name a directory that exists in the guest as working directory.",
  EXEC_FAILED: "Read the reason in the message.",
  EXEC_LIMIT: "Wait for some programs to end.",
  EXEC_NOT_EXECUTABLE: "Check the file's mode and format in the guest.",
  EXEC_NOT_FOUND: "Correct the program's name, or add the package that has it to the image.",
  EXEC_USER_UNKNOWN: "Name a user of the guest's /etc/passwd, or a number, which need not be listed there.",
  FILE_FAILED: "Read the reason in the message.",
  FILE_LIMIT: "Wait for some file operations to end.",
  FILE_NOT_EMPTY: "Remove the directory with all that is in it (`recursive`), or empty it first.",
  FILE_NOT_FOUND: "Correct the path.",
  FILE_NO_SPACE: "Remove files in the guest, or give its template a larger disk (`diskMiB`).",
  FILE_OTHER_FILE_SYSTEM: "Copy the file and remove the first.",
  FILE_UPLOAD_NOT_FOUND: "Write the file again from its start.",
  FILE_WRONG_KIND: "Correct the path.",
  INTERNAL: REPORT,
  INVALID_ARGUMENT: "Correct the value that the message names.",
  PARK_FAILED: CLOSE_AND_FORK,
  PROCESS_BUSY: "Let one caller wait for a process at a time.",
  PROCESS_EXISTS: "Wait for that process to end, or use another name.",
  PROCESS_INPUT_FULL: "Wait for each write to be taken before the next.",
  PROCESS_NOT_FOUND: "Use the name that the process was started with.",
  PTY_BUSY: "Let one exchange on a terminal end before the next.",
  PTY_CLOSED: "Open the terminal again.",
  PTY_ENDED: "Open a new terminal: the program on this one has ended.",
  PTY_EXISTS: "Close the terminal of that name, or use another name.",
  PTY_FAILED: "Read the reason in the message.",
  PTY_INPUT_FULL: "Wait until the program on the terminal reads.",
  PTY_LIMIT: "Close some terminals.",
  PTY_NOT_FOUND: "Open the terminal first.",
  REPLY_TOO_LARGE: "Ask for less at once.",
  RESUME_FAILED: "Fork the checkpoint again.",
  STALE_GENERATION: "Nothing to do: a message to an earlier life of the guest was dropped on purpose.",
  UNEXPECTED: REPORT,
  UNKNOWN_OPERATION: SAME_RELEASE,
  VMM_AGENT_BACKLOG: CLOSE_AND_FORK,
  VMM_BAD_SIZE: "Use another size of memory, or another number of vCPUs.",
  VMM_BOOT_FILES: "Delete Coppice's cache (~/.cache/coppice): it is made again.",
  VMM_CONFINEMENT: "Read the message: the host's kernel lacks what keeps guests in (docs/security.md).",
  VMM_DEVICE_ABUSE: "Fork the checkpoint again; the guest is hostile or broken.",
  VMM_FAILED: "Read the daemon's log.",
  VMM_HOST: "Read the message; the host may lack memory or descriptors.",
  VMM_KVM: "Run `coppice doctor`: it says what KVM can do here.",
  VMM_PROTOCOL: SAME_RELEASE,
  VMM_TOO_LARGE: "Take checkpoints more often: less differs between them.",
  VMM_WHOLE: "Use a template without a disk (diskMiB: 0), whose guest is at rest.",
  VMM_WRONG_STATE: "In `warmUp`, leave out `checkpoint()`; elsewhere report it.",
});

export function remedyOf(code: string): string {
  return REMEDIES[code] ?? `docs/errors.md says what ${code.slice(0, 64)} means.`;
}

/** Something happened that can't. */
export function internalError(message: string, cause?: unknown): CoppiceError {
  return new CoppiceError(message, { code: "INTERNAL", faultDomain: "bug", remedy: REPORT, cause });
}
