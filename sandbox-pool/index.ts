export type * from "./api.js";
export { connectHost } from "./connect.js";
export { CoppiceError, type CoppiceErrorOptions, type FaultDomain } from "./errors.js";
