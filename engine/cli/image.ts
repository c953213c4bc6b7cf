/** `coppice image …`: the images in this machine's cache. */

import Table from "cli-table3";
import { type Command, InvalidArgumentError, Option } from "commander";

import { buildImage, CoppiceError, type ImageSpec, listImages, removeImage } from "../../sandbox-pool/index.js";
import { age, number } from "./display.js";
import { EXIT } from "./exit-codes.js";
import { chooseImage, debianSpec, IMAGE_HELP, readHostFile } from "./image-argument.js";
import type { ProgramParts } from "./program.js";

interface BuildOptions {
  readonly debian?: string;
  readonly file: readonly (readonly [guest: string, host: string])[];
  readonly json?: boolean;
}

export function addImageCommands(program: Command, parts: ProgramParts): void {
  const image = program.command("image").description("Builds, lists and removes images: what sandboxes boot from.");
  image
    .command("build")
    .argument("[spec]", "image to build; see below")
    .summary("build an image, or find it in the cache")
    .description("Builds an image, or finds it in the cache, and prints its id.")
    .option("--debian <packages>", "Debian packages, separated by commas")
    .addOption(new Option("--file <guest=host>", "add a file; may be repeated").argParser(addFile).default([], "none"))
    .option("--json", "print id and path as JSON")
    .addHelpText(
      "after",
      `${IMAGE_HELP}

Examples:
  coppice image build --debian python3,sqlite3
  coppice image build --debian bsdgames --file /srv/start=./start.sh
  coppice image build ./image.json --json`,
    )
    .action(async (spec: string | undefined, options: BuildOptions) => parts.onDone(await build(spec, options, parts)));
  image
    .command("ls")
    .description("Lists the images in the cache, last used first.")
    .option("--json", "print it as JSON")
    .addHelpText("after", "\nExample:\n  coppice image ls")
    .action(async (options: { readonly json?: boolean }) => parts.onDone(await list(options, parts)));
  image
    .command("rm")
    .argument("<id...>", "ids, or enough of their beginning")
    .description("Removes images from the cache. A host that has them goes on using them until it ends.")
    .option("--json", "print the removed ids as JSON")
    .addHelpText("after", "\nExample:\n  coppice image rm sha256:dbe0e731")
    .action(async (ids: readonly string[], options: { readonly json?: boolean }) =>
      parts.onDone(await remove(ids, options, parts)),
    );
}

function addFile(text: string, before: BuildOptions["file"]): BuildOptions["file"] {
  const at = text.indexOf("=");
  if (at < 1 || at === text.length - 1) throw new InvalidArgumentError("Give GUEST=HOST, such as /srv/app=./app.");
  return [...before, [text.slice(0, at), text.slice(at + 1)]];
}

async function build(
  word: string | undefined,
  options: BuildOptions,
  { terminal, signal }: ProgramParts,
): Promise<number> {
  const spec = await specOf(word, options);
  const { id, path } = await buildImage(spec, { signal, onProgress: (text) => terminal.log(text) });
  terminal.print(options.json === true ? JSON.stringify({ id, path }) : id);
  return EXIT.done;
}

async function specOf(word: string | undefined, options: BuildOptions): Promise<ImageSpec> {
  if ((word === undefined) === (options.debian === undefined)) {
    throw usage(
      word === undefined ? "Say what to build: an image, or --debian" : "Give an image or --debian, not both",
    );
  }
  if (word?.startsWith("sha256:")) throw usage("An image that has an id is built already");
  const spec = word === undefined ? debianSpec(options.debian ?? "") : (await chooseImage(word)).spec;
  const files: Record<string, string | Uint8Array> = { ...spec.files };
  for (const [guest, host] of options.file) files[guest] = await readHostFile(host);
  return { ...spec, files };
}

function usage(message: string): CoppiceError {
  return new CoppiceError(message, {
    code: "INVALID_ARGUMENT",
    faultDomain: "user",
    remedy: "`coppice image build --help` has examples.",
  });
}

async function list(options: { readonly json?: boolean }, { terminal }: ProgramParts): Promise<number> {
  const images = await listImages();
  if (options.json === true) {
    terminal.print(JSON.stringify({ images }));
    return EXIT.done;
  }
  if (images.length === 0) {
    terminal.print("no image is in the cache");
    return EXIT.done;
  }
  const table = new Table({
    head: ["image", "release", "packages", "files", "MiB", "used"],
    style: { head: [], border: [] },
  });
  for (const { id, suite, packages, files, sizeBytes, lastUsedAt } of images) {
    const named = packages.length === 0 ? "(minimal)" : packages.join(" ");
    const used = `${age(Date.now() - lastUsedAt.getTime())} ago`;
    const added = files === null ? "?" : String(files.length);
    table.push([
      id.slice(0, "sha256:".length + 12),
      suite,
      named,
      added,
      number(Math.round(sizeBytes / 2 ** 20)),
      used,
    ]);
  }
  terminal.print(table.toString());
  return EXIT.done;
}

async function remove(
  ids: readonly string[],
  options: { readonly json?: boolean },
  { terminal }: ProgramParts,
): Promise<number> {
  const removed: string[] = [];
  for (const id of ids) {
    const whole = await removeImage(id);
    removed.push(whole);
    if (options.json !== true) terminal.print(`removed ${whole}`);
  }
  if (options.json === true) terminal.print(JSON.stringify({ removed }));
  return EXIT.done;
}
