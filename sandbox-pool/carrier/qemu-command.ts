/** The command line of a carrier's QEMU. */

import { join } from "node:path";

import type { HostArtifacts } from "../artifacts/index.js";
import { DEFAULTS } from "./defaults.js";

export interface QemuOptions {
  readonly program: string;
  readonly directory: string;
  readonly artifacts: HostArtifacts;
  readonly memoryMiB: number;
  readonly port: number;
}

export const CONFIG_SERIAL = "coppice-config";
export const GUEST_SERIAL = "coppice-guest";

const KERNEL_ARGUMENTS = [
  "console=ttyS0",
  "quiet",
  // Without an invariant TSC Linux falls back to a slow clock, and KVM to its catch-up mode.
  "tsc=reliable",
  // The emulated CPU has no speculation to guard against; the guards cost.
  "mitigations=off",
  // QEMU translates code by virtual address: where programs load elsewhere each time, everything is translated anew.
  "norandmaps",
  "nokaslr",
  // A panic ends QEMU (with -no-reboot) instead of hanging.
  "panic=-1",
  "rdinit=/coppiced",
  "--",
  "carrier",
];

export function configFileOf(directory: string): string {
  return join(directory, "config.img");
}

export function qemuCommand(options: QemuOptions): readonly string[] {
  const { directory, artifacts } = options;
  return [
    options.program,
    ...["-name", "coppice-carrier", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot"],
    ...["-machine", "pc,usb=off,mem-merge=off,dump-guest-core=off", "-accel", "tcg"],
    // Page tables of four levels instead of five: a guest's access walks them level by level for each of its own levels.
    // One CPU: SVM on several emulated CPUs loses interrupts and stops.
    ...["-cpu", "max,svm=on,la57=off", "-smp", "1", "-m", `${options.memoryMiB}`],
    // Should a guest break out of both virtual machines, it can start nothing.
    ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
    ...["-kernel", artifacts.kernelBzImage, "-initrd", artifacts.carrierInitrd],
    ...["-append", KERNEL_ARGUMENTS.join(" ")],
    // Standard output is the keeper's pipe.
    ...["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"],
    ...["-chardev", `socket,id=qmp,server=on,wait=off,path=${escapeOption(join(directory, "qmp"))}`],
    ...["-mon", "chardev=qmp,mode=control"],
    // No way out, and one way in: the daemon's port, from this machine only.
    ...[
      "-netdev",
      `user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:${options.port}-10.0.2.15:${DEFAULTS.guestPort}`,
    ],
    ...["-device", "virtio-net-pci,netdev=net,romfile="],
    ...disk("config", configFileOf(directory), CONFIG_SERIAL),
    ...disk("guest", artifacts.guestDisk, GUEST_SERIAL),
  ];
}

/** A read-only disk as QMP has it; many carriers share the file, so it is not locked. */
export function readOnlyDrive(node: string, path: string): object {
  return {
    driver: "raw",
    "node-name": node,
    "read-only": true,
    file: { driver: "file", filename: path, "read-only": true, locking: "off" },
  };
}

function disk(node: string, path: string, serial: string): readonly string[] {
  return [
    "-blockdev",
    JSON.stringify(readOnlyDrive(node, path)),
    "-device",
    `virtio-blk-pci,drive=${node},serial=${serial}`,
  ];
}

/** QEMU's option syntax has the comma doubled. */
function escapeOption(value: string): string {
  return value.replaceAll(",", ",,");
}
