/**
 * Debian's archive through apt, with a state of its own: the machine's package lists, sources and hooks are neither used nor
 * touched. apt verifies the chain from the archive's keys to each file.
 */

import { existsSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { CoppiceError } from "../errors.js";
import { withFileLock } from "./lock.js";
import { findTool, type RunResult, run, runChecked, tail, toolFailed } from "./tools.js";

export const DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg";

const DEFAULT_MIRROR = "http://deb.debian.org/debian";
const DEFAULT_SECURITY_MIRROR = "http://deb.debian.org/debian-security";

/** Settings of the machine that say how servers are reached and how old a mirror may be; checks of certificates stay on. */
const TRANSPORT_SETTING =
  /^Acquire::(https?(::|$)|Retries\b|ForceIPv[46]\b|Check-Valid-Until\b|Check-Date\b|Queue-Mode\b)/;
const WEAKENING_SETTING = /Verify-(Peer|Host)/i;

export interface AptOptions {
  /** Directory for the state; made, and removed afterwards. */
  readonly directory: string;
  readonly suite: string;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

export interface Apt extends ArchiveAccess {
  run(tool: "apt-get" | "apt-cache", args: readonly string[], cwd?: string): Promise<RunResult>;
}

/** How to reach an archive: apt.conf lines and sources.list lines. */
export interface ArchiveAccess {
  readonly transport: readonly string[];
  readonly sources: readonly string[];
}

/** The machine's own mirrors first, then Debian's, which are tried where those do not answer. */
export async function archiveAccess(suite: string, signal?: AbortSignal): Promise<readonly ArchiveAccess[]> {
  requireKeyring();
  const transport = await transportSettings(signal);
  const own = await debianSources(suite, signal);
  const fallback = defaultSources(suite);
  const isOne = own.join() === fallback.join() || process.env["COPPICE_DEBIAN_MIRROR"] !== undefined;
  return (isOne ? [own] : [own, fallback]).map((sources) => ({ transport, sources }));
}

/** Runs `body` with an up-to-date private package index, which is thrown away afterwards. */
export async function withApt<T>(options: AptOptions, body: (apt: Apt) => Promise<T>): Promise<T> {
  const { directory, suite, signal, onProgress } = options;
  const lockOptions = { signal, onWait: () => onProgress?.("waits for another process that uses the package index") };
  return await withFileLock(`${directory}.lock`, lockOptions, async () => {
    try {
      onProgress?.(`reads Debian's package index (${suite})`);
      let failure: CoppiceError | undefined;
      for (const access of await archiveAccess(suite, signal)) {
        const apt = await prepare(options, access);
        failure = await update(apt);
        if (failure === undefined) {
          return await body(apt);
        }
      }
      throw failure;
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}

export function requireKeyring(): void {
  if (!existsSync(DEBIAN_KEYRING)) {
    throw new CoppiceError(`Debian's archive keys are not installed (${DEBIAN_KEYRING})`, {
      code: "TOOL_MISSING",
      faultDomain: "user",
      remedy: "Install them: apt-get install --no-install-recommends debian-archive-keyring",
    });
  }
}

async function prepare(options: AptOptions, access: ArchiveAccess): Promise<Apt> {
  const at = (...names: string[]) => join(options.directory, ...names);
  await rm(options.directory, { recursive: true, force: true });
  for (const directory of [at("lists", "partial"), at("archives", "partial"), at("parts")]) {
    await mkdir(directory, { recursive: true });
  }
  await writeFile(at("status"), "");
  await writeFile(at("sources.list"), `${access.sources.join("\n")}\n`);
  await writeFile(at("apt.conf"), aptConfiguration(at(), access.transport));
  return {
    ...access,
    run: async (tool, args, cwd) =>
      await run(tool, args, {
        env: { APT_CONFIG: at("apt.conf") },
        signal: options.signal,
        ...(cwd === undefined ? {} : { cwd }),
      }),
  };
}

async function update(apt: Apt): Promise<CoppiceError | undefined> {
  const result = await apt.run("apt-get", ["update", "--error-on=any"]);
  return result.exitCode === 0 ? undefined : archiveFailure(result, apt.sources);
}

/** What a failed `apt-get update`, `apt-get download` or `mmdebstrap` means. */
export function archiveFailure(result: RunResult, sources: readonly string[]): CoppiceError {
  const output = result.output;
  if (/NO_PUBKEY|is not signed|couldn't be verified|EXPKEYSIG|BADSIG|At least one invalid signature/i.test(output)) {
    return new CoppiceError(`Debian's archive can't be verified\n${tail(output, 5)}`, {
      code: "ARCHIVE_UNVERIFIED",
      faultDomain: "host",
      remedy: "Bring debian-archive-keyring up to date and check the machine's clock; a mirror may also be damaged.",
    });
  }
  const network =
    /Could not resolve|Temporary failure resolving|Could not connect|Connection (failed|timed out|refused)|Unable to connect|Failed to fetch|Network is unreachable|does not have a Release file/i;
  if (network.test(output)) {
    const servers = [...new Set(sources.map((line) => /https?:\/\/[^\s/]+/.exec(line)?.[0] ?? line))].join(", ");
    return new CoppiceError(`Debian's archive can't be reached (${servers})\n${tail(output, 5)}`, {
      code: "NETWORK_UNAVAILABLE",
      faultDomain: "host",
      retryable: true,
      remedy:
        "Connect the machine once, set apt's proxy (Acquire::http::Proxy), or name a mirror: COPPICE_DEBIAN_MIRROR=http://…/debian. What is in the cache already needs no network.",
    });
  }
  return toolFailed("apt-get", result);
}

function aptConfiguration(directory: string, transport: readonly string[]): string {
  const lines = [
    // Read before the machine's own files, and so able to switch them off.
    `Dir::Etc::main "/dev/null";`,
    `Dir::Etc::parts "${directory}/parts";`,
    `Dir::Etc::sourcelist "${directory}/sources.list";`,
    `Dir::Etc::sourceparts "${directory}/parts";`,
    `Dir::Etc::preferences "/dev/null";`,
    `Dir::Etc::preferencesparts "${directory}/parts";`,
    `Dir::State "${directory}";`,
    `Dir::State::lists "${directory}/lists";`,
    `Dir::State::status "${directory}/status";`,
    `Dir::Cache "${directory}";`,
    `Dir::Cache::archives "${directory}/archives";`,
    `Dir::Log "${directory}";`,
    `APT::Architecture "amd64";`,
    `APT::Architectures { "amd64"; };`,
    // The unprivileged user of apt's downloads can't enter a private cache directory.
    `APT::Sandbox::User "root";`,
    `Acquire::Languages "none";`,
    `Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";`,
    `Acquire::Retries "3";`,
    `Acquire::http::Timeout "30";`,
    `Acquire::https::Timeout "30";`,
    ...transport,
  ];
  return `${lines.join("\n")}\n`;
}

/** How this machine reaches servers: proxies, certificates, time-outs. */
async function transportSettings(signal: AbortSignal | undefined): Promise<readonly string[]> {
  const { stdout } = await runChecked("apt-config", ["dump"], { signal });
  return stdout.split("\n").filter((line) => TRANSPORT_SETTING.test(line) && !WEAKENING_SETTING.test(line));
}

/** The mirrors that this machine uses where it is a Debian of the same suite, otherwise Debian's own. */
async function debianSources(suite: string, signal: AbortSignal | undefined): Promise<readonly string[]> {
  const osRelease = await readFile("/etc/os-release", "utf8").catch(() => "");
  const isSameDebian = /^ID=debian$/m.test(osRelease) && osRelease.includes(`VERSION_CODENAME=${suite}\n`);
  if (process.env["COPPICE_DEBIAN_MIRROR"] !== undefined || !isSameDebian || findTool("apt-get") === undefined) {
    return defaultSources(suite);
  }
  const format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
  const targets = await run("apt-get", ["indextargets", "--format", format, "Created-By: Packages"], { signal });
  const own = mirrorLines(targets.exitCode === 0 ? targets.stdout : "", suite);
  return own.length === 0 ? defaultSources(suite) : own;
}

/** Of the machine's repositories those that are Debian's own of this suite. Exported for tests. */
export function mirrorLines(targets: string, suite: string): readonly string[] {
  const wanted = new Set([suite, `${suite}-updates`, `${suite}-security`]);
  const lines = new Set<string>();
  for (const line of targets.split("\n")) {
    const [uri, release, component] = line.trim().split(/\s+/);
    const isDebian = uri !== undefined && /^(https?|mirror(\+\w+)?):.*\/debian(-security)?\/?$/.test(uri);
    if (isDebian && release !== undefined && wanted.has(release) && component === "main") {
      lines.add(sourceLine(uri, release));
    }
  }
  return [...lines].some((line) => line.includes(` ${suite} main`)) ? [...lines].sort() : [];
}

function defaultSources(suite: string): readonly string[] {
  const named = process.env["COPPICE_DEBIAN_MIRROR"];
  const mirror = named ?? DEFAULT_MIRROR;
  const security = named === undefined ? DEFAULT_SECURITY_MIRROR : undefined;
  return [
    sourceLine(mirror, suite),
    ...(suite === "sid" || suite === "unstable" ? [] : [sourceLine(mirror, `${suite}-updates`)]),
    ...(security === undefined || suite === "sid" || suite === "unstable"
      ? []
      : [sourceLine(security, `${suite}-security`)]),
  ];
}

function sourceLine(uri: string, release: string): string {
  return `deb [arch=amd64 signed-by=${DEBIAN_KEYRING}] ${uri} ${release} main`;
}
