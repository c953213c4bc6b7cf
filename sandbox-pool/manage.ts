/**
 * The hosts and images of this machine from the outside: start, stop, look, diagnose. What each takes is loaded when it is called, because
 * most programs only connect.
 */

import type { ImageSpec } from "./api.js";
import { DEFAULTS as IMAGES } from "./artifacts/defaults.js";
import type { StoredImage } from "./artifacts/index.js";
import type { DiagnoseOptions, DoctorReport } from "./doctor/index.js";
import type { HostStatus } from "./keeping/index.js";

export interface StartHostOptions {
  /** `auto`: what `connectHost()` would use. */
  readonly kind: "auto" | "kvm" | "carrier";
  /** Seconds without clients after which it ends by itself. Default: COPPICE_CARRIER_IDLE_SECONDS, or 60. */
  readonly idleSeconds?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

export interface StartedHost {
  readonly kind: "kvm" | "carrier";
  readonly pid: number;
  /** Whether this call has started it; otherwise it ran already, with the idle time that it was started with. */
  readonly started: boolean;
}

/** Starts a host, or finds it, and leaves it running. */
export async function startHost(options: StartHostOptions): Promise<StartedHost> {
  const kind = options.kind === "auto" ? await usableKind(options) : options.kind;
  if (options.kind === "kvm") {
    // A daemon would start without it too, and fail at the first guest.
    const { requireKvm } = await import("./connect.js");
    await requireKvm(options.signal === undefined ? {} : { signal: options.signal });
  }
  const given = {
    keep: true,
    signal: options.signal,
    onProgress: options.onProgress,
    ...(options.idleSeconds === undefined ? {} : { idleSeconds: options.idleSeconds }),
  };
  const host =
    kind === "kvm"
      ? await (await import("./local/index.js")).ensureLocalHost(given)
      : await (await import("./carrier/index.js")).ensureCarrier(given);
  await host.release();
  return { kind, pid: host.pid, started: host.started };
}

async function usableKind({ signal, onProgress }: StartHostOptions): Promise<"kvm" | "carrier"> {
  const { probeKvm } = await import("./doctor/index.js");
  const kvm = await probeKvm(signal === undefined ? {} : { signal });
  onProgress?.(
    kvm.usable
      ? "Uses this machine's KVM"
      : `Uses an emulated host: this machine's KVM can't run Linux guests (${kvm.reason})`,
  );
  return kvm.usable ? "kvm" : "carrier";
}

/** Ends all hosts of this user, whoever uses them. Gives how many there were. */
export async function stopHosts(options: { readonly signal?: AbortSignal } = {}): Promise<number> {
  const [{ stopCarrier }, { stopLocalHost }] = await Promise.all([
    import("./carrier/index.js"),
    import("./local/index.js"),
  ]);
  const ended = await Promise.all([stopCarrier(options), stopLocalHost(options)]);
  return ended.reduce((sum, count) => sum + count, 0);
}

/** The hosts of this user that run now. */
export async function hostStatus(): Promise<readonly HostStatus[]> {
  const [{ carrierStatus }, { localHostStatus }] = await Promise.all([
    import("./carrier/index.js"),
    import("./local/index.js"),
  ]);
  return (await Promise.all([carrierStatus(), localHostStatus()])).flat();
}

/** What this machine can do, what is missing, and the command that adds it. */
export async function diagnose(options: DiagnoseOptions = {}): Promise<DoctorReport> {
  return await (await import("./doctor/index.js")).diagnose(options);
}

/** The release of Debian that images are made of where their description names none. */
export const DEBIAN_SUITE = IMAGES.suite;

export interface BuiltImage {
  readonly id: string;
  /** erofs file. */
  readonly path: string;
}

/** Builds an image, or finds it in the cache, without a host. */
export async function buildImage(
  spec: ImageSpec,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (message: string) => void } = {},
): Promise<BuiltImage> {
  return await (await import("./artifacts/index.js")).buildImageFile(spec, options);
}

/** The images in this machine's cache, last used first. */
export async function listImages(): Promise<readonly StoredImage[]> {
  return await (await import("./artifacts/index.js")).listImages();
}

/** The image with this id, or the only one whose id begins so. Throws `IMAGE_NOT_FOUND`. */
export async function findImage(id: string): Promise<BuiltImage> {
  return await (await import("./artifacts/index.js")).findImage(id);
}

/** Removes an image from the cache, and gives its whole id. Throws `IMAGE_NOT_FOUND`. */
export async function removeImage(id: string): Promise<string> {
  return await (await import("./artifacts/index.js")).removeImage(id);
}
