export { lastConsoleOf, readConsole } from "./console.js";
export { chooseIdleSeconds } from "./idle.js";
export { ensureHost, type Hold, type HostStatus, hostStatus, type ReleaseOptions, stopHosts } from "./kept-hosts.js";
export type { LaunchPlan } from "./launch.js";
export { runtimeDirectory } from "./runtime-directory.js";
