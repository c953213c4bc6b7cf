export { ensureHostArtifacts, type HostArtifacts, type HostArtifactsOptions } from "./host-artifacts.js";
export { type BuildImageOptions, buildImageFile, type ImageFile } from "./image.js";
export { findNativePrograms, type NativePrograms } from "./native.js";
