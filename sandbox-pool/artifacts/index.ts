export { ensureHostArtifacts, type HostArtifacts, type HostArtifactsOptions } from "./host-artifacts.js";
export { findNativePrograms, type NativePrograms } from "./native.js";
