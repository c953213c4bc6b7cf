/** The daemon of this user on a machine whose KVM is real, see `doctor/probe-kvm.ts`. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { ensureHostArtifacts, type HostArtifactsOptions } from "../artifacts/index.js";
import { stateDirectory as stateFolder } from "../artifacts/paths.js";
import {
  chooseIdleSeconds,
  ensureHost,
  type HostStatus,
  hostStatus,
  type ReleaseOptions,
  readConsole,
  stopHosts,
} from "../keeping/index.js";

export interface LocalHostOptions extends HostArtifactsOptions {
  /** Seconds without clients after which it ends by itself. Default: COPPICE_CARRIER_IDLE_SECONDS, or 60. */
  readonly idleSeconds?: number;
  /** It is started on purpose, and runs on while nobody uses it. Default: false. */
  readonly keep?: boolean;
}

export interface LocalHost {
  /** Path of the daemon's socket. */
  readonly unix: string;
  /** Of the keeper, the daemon's parent. */
  readonly pid: number;
  /** Whether this call has started it; otherwise it ran already. */
  readonly started: boolean;
  /** The daemon's messages, for diagnosis. */
  console(): string;
  /** As a carrier's. */
  release(options?: ReleaseOptions): Promise<void>;
}

/** Finds the running daemon of these artefacts, or starts one. Throws as `ensureCarrier`. */
export async function ensureLocalHost(options: LocalHostOptions = {}): Promise<LocalHost> {
  const artifacts = await ensureHostArtifacts(options);
  const idleSeconds = chooseIdleSeconds(options.idleSeconds);
  const hold = await ensureHost({
    kind: "kvm",
    instance: 0,
    key: artifacts.key,
    keeper: artifacts.keeper,
    startMessage: "starts the daemon",
    keep: options.keep,
    signal: options.signal,
    onProgress: options.onProgress,
    prepare: async (directory) => {
      const unix = join(directory, "host.sock");
      const stateDirectory = join(directory, "state");
      mkdirSync(stateDirectory, { mode: 0o700 });
      return {
        record: { kind: "kvm", key: artifacts.key, instance: 0, endpoint: { unix } },
        command: [
          ...[artifacts.coppiced, "serve", "--unix", unix, "--state-dir", stateDirectory],
          ...["--vmm", artifacts.vmm, "--kernel", artifacts.vmlinux, "--initrd", artifacts.guestInitrd],
          ...["--extents-dir", join(stateFolder(), "extents")],
          ...["--idle-exit", `${idleSeconds}`, "--host-kind", "kvm"],
        ],
      };
    },
  });
  const { endpoint } = hold.host;
  if (!("unix" in endpoint)) {
    throw new Error("a local host's record has a socket: the schema and prepare() disagree");
  }
  return {
    unix: endpoint.unix,
    pid: hold.host.process.pid,
    started: hold.started,
    console: () => readConsole(hold.host),
    release: async (release) => await hold.release(release),
  };
}

/** Ends all local daemons of this user, whoever uses them. Gives how many there were. */
export async function stopLocalHost(options: { readonly signal?: AbortSignal } = {}): Promise<number> {
  return await stopHosts("kvm", options.signal);
}

export async function localHostStatus(): Promise<readonly HostStatus[]> {
  return await hostStatus("kvm");
}
