import { CoppiceError } from "../errors.js";
import { DEFAULTS } from "./defaults.js";

/** Whole seconds without clients after which a host ends: what was asked for, COPPICE_CARRIER_IDLE_SECONDS, or the default. */
export function chooseIdleSeconds(requested?: number): number {
  const text = process.env["COPPICE_CARRIER_IDLE_SECONDS"];
  const value = requested ?? (text === undefined || text === "" ? DEFAULTS.idleSeconds : Number(text));
  if (!Number.isInteger(value) || value <= 0) {
    throw new CoppiceError(`Idle time of ${requested ?? text} seconds is not possible`, {
      code: "INVALID_ARGUMENT",
      faultDomain: "user",
      remedy: "COPPICE_CARRIER_IDLE_SECONDS must be a whole number above 0.",
    });
  }
  return value;
}
