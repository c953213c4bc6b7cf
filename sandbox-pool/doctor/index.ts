export { type DiagnoseOptions, diagnose } from "./diagnose.js";
export { type KvmProbe, type ProbeOptions, probeKvm } from "./probe-kvm.js";
export type { Check, DoctorReport, Severity } from "./report.js";
