export { makeBlankDisk } from "./blank-disk.js";
export { ensureHostArtifacts, type HostArtifacts, type HostArtifactsOptions } from "./host-artifacts.js";
export { buildImageFile } from "./image.js";
