/** Arguments of options, checked where they are read, so that the message names the option. */

import { InvalidArgumentError, Option } from "commander";

export function wholeNumber(minimum: number, maximum = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = /^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= minimum && value <= maximum)) {
      const range = maximum === Number.MAX_SAFE_INTEGER ? `of at least ${minimum}` : `from ${minimum} to ${maximum}`;
      throw new InvalidArgumentError(`Give a whole number ${range}.`);
    }
    return value;
  };
}

export function positiveNumber(maximum: number): (text: string) => number {
  return (text) => {
    const value = /^\d*\.?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value > 0 && value <= maximum)) throw new InvalidArgumentError(`Give a number above 0, at most ${maximum}.`);
    return value;
  };
}

export function guestDirectory(text: string): string {
  if (!text.startsWith("/")) throw new InvalidArgumentError("Give a path in the guest that begins with /.");
  return text;
}

export function guestUser(text: string): string {
  if (!/^[^:]+(?::[^:]+)?$/.test(text)) throw new InvalidArgumentError("Give USER or USER:GROUP, names or numbers.");
  return text;
}

export type HostKind = "auto" | "kvm" | "carrier" | `coppice://${string}` | `coppice+tls://${string}`;

const HOST_FORMS = "auto, kvm, carrier, coppice://HOST:PORT or coppice+tls://HOST:PORT";

export function hostKind(text: string): HostKind {
  if (text === "auto" || text === "kvm" || text === "carrier") return text;
  if (isRemote(text)) return text as HostKind;
  throw new InvalidArgumentError(`Give ${HOST_FORMS}.`);
}

/** Whether it names a daemon that runs already, here or elsewhere. */
export function isRemote(text: string): boolean {
  return /^coppice(\+tls)?:\/\/(\[[0-9A-Fa-f:.]+\]|[^/:]+):\d+$/.test(text);
}

/** `--host`, for every command that works on one. */
export function hostOption(): Option {
  return new Option("--host <host>", HOST_FORMS).argParser(hostKind).default("auto");
}
