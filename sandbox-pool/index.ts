export type * from "./api.js";
export type { StoredImage } from "./artifacts/index.js";
export { connectBaseline, type FullMemoryBaseline } from "./baseline.js";
export { connectHost } from "./connect.js";
export type { Check, DoctorReport } from "./doctor/index.js";
export { CoppiceError, type CoppiceErrorOptions, type FaultDomain } from "./errors.js";
export type { HostStatus } from "./keeping/index.js";
export {
  type BuiltImage,
  buildImage,
  DEBIAN_SUITE,
  diagnose,
  findImage,
  hostStatus,
  listImages,
  removeImage,
  type StartedHost,
  type StartHostOptions,
  startHost,
  stopHosts,
} from "./manage.js";
export { internalError, remedyOf } from "./remedies.js";
