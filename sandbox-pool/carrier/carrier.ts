/** The emulated host of this user, see docs/carrier.md. */

import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

import { ensureHostArtifacts, type HostArtifacts, type HostArtifactsOptions } from "../artifacts/index.js";
import { requireTool } from "../artifacts/tools.js";
import {
  chooseIdleSeconds,
  ensureHost,
  type Hold,
  type HostStatus,
  hostStatus,
  type LaunchPlan,
  type ReleaseOptions,
  readConsole,
  stopHosts,
} from "../keeping/index.js";
import { DEFAULTS } from "./defaults.js";
import { chooseMemoryMiB } from "./memory.js";
import { configFileOf, qemuCommand, readOnlyDrive } from "./qemu-command.js";
import { qmp } from "./qmp.js";

export interface CarrierOptions extends HostArtifactsOptions {
  /** A machine with many cores runs several carriers: 0 (default), 1, … */
  readonly instance?: number;
  /** Most memory that it may take. Default: COPPICE_CARRIER_MEMORY_MIB, or half of what is available, 2 to 16 GiB. */
  readonly memoryMiB?: number;
  /** Seconds without clients after which it ends by itself. Default: COPPICE_CARRIER_IDLE_SECONDS, or 60. */
  readonly idleSeconds?: number;
  /** It is started on purpose, and runs on while nobody uses it. Default: false. */
  readonly keep?: boolean;
}

export interface Carrier {
  readonly host: string;
  readonly port: number;
  /** For the first frame of a client. Keep it out of logs. */
  readonly token: string;
  /** Of the keeper, QEMU's parent. */
  readonly pid: number;
  /** Whether this call has started it; otherwise it ran already. */
  readonly started: boolean;
  /** Makes an image file a disk of the carrier, for `image.attach` with the serial. Twice is a no-op. */
  attachImage(id: string, path: string): Promise<{ readonly serial: string }>;
  /** QEMU's messages and the console, for diagnosis. */
  console(): string;
  /**
   * This process needs it no more. With `stopIfUnused` it ends at once unless somebody else uses it; otherwise it ends by
   * itself later. Twice is a no-op.
   */
  release(options?: ReleaseOptions): Promise<void>;
}

/**
 * Finds the running carrier of these artefacts, or starts one. Throws `HOST_START_FAILED`, `HOST_UNRESPONSIVE`,
 * `MEMORY_TOO_SMALL`, and what making the artefacts throws.
 */
export async function ensureCarrier(options: CarrierOptions = {}): Promise<Carrier> {
  const artifacts = await ensureHostArtifacts(options);
  const settings: Settings = {
    artifacts,
    instance: options.instance ?? 0,
    idleSeconds: chooseIdleSeconds(options.idleSeconds),
    requestedMemoryMiB: options.memoryMiB,
  };
  const hold = await ensureHost({
    kind: "carrier",
    instance: settings.instance,
    key: artifacts.key,
    keeper: artifacts.keeper,
    startMessage: "boots the emulated host",
    prepare: async (directory) => await prepare(directory, settings),
    retryWhen: /Could not set up host forwarding rule/,
    keep: options.keep,
    signal: options.signal,
    onProgress: options.onProgress,
  });
  return new HeldCarrier(hold);
}

/** As `carrier.release`. */
export async function releaseCarrier(carrier: Carrier, options: ReleaseOptions = {}): Promise<void> {
  await carrier.release(options);
}

/** Ends all carriers of this user, whoever uses them. Gives how many there were. */
export async function stopCarrier(options: { readonly signal?: AbortSignal } = {}): Promise<number> {
  return await stopHosts("carrier", options.signal);
}

export async function carrierStatus(): Promise<readonly HostStatus[]> {
  return await hostStatus("carrier");
}

interface Settings {
  readonly artifacts: HostArtifacts;
  readonly instance: number;
  readonly idleSeconds: number;
  readonly requestedMemoryMiB: number | undefined;
}

async function prepare(directory: string, settings: Settings): Promise<LaunchPlan> {
  const { artifacts, instance, idleSeconds } = settings;
  const program = requireTool("qemu-system-x86_64");
  const memoryMiB = chooseMemoryMiB(settings.requestedMemoryMiB);
  const port = await freePort();
  const token = randomBytes(24).toString("base64url");
  writeConfig(directory, { token, port: DEFAULTS.guestPort, idleSeconds });
  return {
    record: { kind: "carrier", key: artifacts.key, instance, endpoint: { host: LOOPBACK, port }, token, memoryMiB },
    command: qemuCommand({ program, directory, artifacts, memoryMiB, port }),
  };
}

const LOOPBACK = "127.0.0.1";

/** JSON, and zeros up to whole pages: a disk has whole sectors. */
function writeConfig(directory: string, config: object): void {
  const json = Buffer.from(JSON.stringify(config));
  const image = Buffer.alloc(Math.ceil(json.length / 4096) * 4096);
  json.copy(image);
  writeFileSync(configFileOf(directory), image, { mode: 0o600 });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, LOOPBACK, resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") {
    throw new Error(`no free port on ${LOOPBACK}`);
  }
  return address.port;
}

class HeldCarrier implements Carrier {
  readonly host: string;
  readonly port: number;
  readonly token: string;
  readonly pid: number;
  readonly started: boolean;
  readonly #hold: Hold;

  constructor(hold: Hold) {
    const { endpoint, token, process: keeper } = hold.host;
    if (!("port" in endpoint) || token === undefined) {
      throw new Error("a carrier's record has a port and a token: the schema and prepare() disagree");
    }
    this.#hold = hold;
    this.host = endpoint.host;
    this.port = endpoint.port;
    this.token = token;
    this.pid = keeper.pid;
    this.started = hold.started;
  }

  async attachImage(id: string, path: string): Promise<{ readonly serial: string }> {
    const serial = serialOf(id);
    const node = `image-${serial}`;
    const device = { driver: "virtio-blk-pci", id: `disk-${serial}`, drive: node, serial };
    await qmp(
      join(this.#hold.host.directory, "qmp"),
      [
        { execute: "blockdev-add", arguments: readOnlyDrive(node, path), doneBefore: /Duplicate nodes/i },
        { execute: "device_add", arguments: device, doneBefore: /Duplicate device ID/i },
      ],
      DEFAULTS.qmpTimeoutMs,
    );
    return { serial };
  }

  console(): string {
    return readConsole(this.#hold.host);
  }

  async release(options: ReleaseOptions = {}): Promise<void> {
    await this.#hold.release(options);
  }
}

/** Content ids are digests: 80 bits of them tell images apart as well as all. */
function serialOf(id: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(id)?.[1] ?? createHash("sha256").update(id).digest("hex");
  return hex.slice(0, DEFAULTS.serialChars);
}
