export {
  type Carrier,
  type CarrierOptions,
  type CarrierStatus,
  carrierStatus,
  ensureCarrier,
  type ReleaseOptions,
  releaseCarrier,
  stopCarrier,
} from "./carrier.js";
