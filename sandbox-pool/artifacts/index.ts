export { makeBlankDisk } from "./blank-disk.js";
export { ensureHostArtifacts, type HostArtifacts, type HostArtifactsOptions } from "./host-artifacts.js";
export { buildImageFile } from "./image.js";
export { findImage, listImages, removeImage, type StoredImage } from "./image-store.js";
