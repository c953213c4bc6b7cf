export type * from "./api.js";
export { CoppiceError, type CoppiceErrorOptions, type FaultDomain } from "./errors.js";
