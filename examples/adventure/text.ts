/** The game's replies as text: cleaned of what the terminal adds, cut into the paragraphs that it speaks in. */

/** Far above the longest reply of the game (its volcano); a guest that floods the terminal is cut here. */
const MAX_TEXT = 16_384;

/** What the game asks with yes or no in mind. Other sentences that end in a question mark take any command. */
const YES_NO_QUESTION =
  /(?:^|[.!?"] )(?:Do you|Would you like|You don't expect|Are you trying|Should I go ahead|Is this acceptable)\b[^?]*\?$/;

/** Spoken when something else was answered to such a question. */
const REPEATED_QUESTION = "Please answer the question.";

/** Removes the terminal's echo of `sent`, carriage returns, control characters, and runs of blank lines. */
export function normalise(raw: string, sent: readonly string[] = []): string {
  let text = raw
    .slice(0, MAX_TEXT)
    .replace(/\r/g, "")
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
    .replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, " ");
  for (const line of sent) {
    if (text.startsWith(`${line}\n`)) text = text.slice(line.length + 1);
  }
  return text
    .split("\n")
    .map((line) => line.replace(/ +/g, " ").trim())
    .join("\n")
    .replace(/\n{3,}/g, "\n\n")
    .trim();
}

/** The paragraphs of a normalised reply, each on one line. */
export function paragraphs(text: string): readonly string[] {
  return text
    .split("\n\n")
    .map((paragraph) => paragraph.replace(/\n/g, " ").trim())
    .filter((paragraph) => paragraph !== "");
}

/** Whether the reply ends with a question that the game insists on having answered with yes or no. */
export function asksYesOrNo(text: string): boolean {
  const [before = "", last = ""] = ["", ...paragraphs(text)].slice(-2);
  return YES_NO_QUESTION.test(last) || last.startsWith(REPEATED_QUESTION) || before.startsWith(REPEATED_QUESTION);
}
