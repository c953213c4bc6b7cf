export {
  ensureLocalHost,
  type LocalHost,
  type LocalHostOptions,
  localHostStatus,
  stopLocalHost,
} from "./local-host.js";
