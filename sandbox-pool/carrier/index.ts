export {
  type Carrier,
  type CarrierOptions,
  carrierStatus,
  ensureCarrier,
  releaseCarrier,
  stopCarrier,
} from "./carrier.js";
