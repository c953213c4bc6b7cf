/** What `coppice doctor` says, as data. */

export type Severity = "ok" | "note" | "warning" | "problem";

export interface Check {
  /** What was looked at, such as `memory`. */
  readonly name: string;
  /**
   * `note`: worth knowing. `warning`: it works, though worse than it could. `problem`: without the remedy there is no
   * usable host, or no image can be built.
   */
  readonly severity: Severity;
  readonly message: string;
  readonly remedy?: string;
}

export interface DoctorReport {
  /** Which host `connectHost()` would use on this machine. */
  readonly host: "kvm" | "carrier" | "none";
  readonly checks: readonly Check[];
}
