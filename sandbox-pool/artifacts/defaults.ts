/** Every number and list of what is built once, with the reason beside it. */

const DAY_MS = 24 * 3600 * 1_000;

export const DEFAULTS = Object.freeze({
  suite: "bookworm",
  /** Depends on the newest kernel for virtual machines: small, and with every driver that is needed here. */
  kernelPackage: "linux-image-cloud-amd64",
  /** Modules of a guest: its two devices and its root file system. */
  guestModules: Object.freeze(["virtio_mmio", "virtio_blk", "virtio_console", "erofs", "overlay"]),
  /** Modules of a carrier: devices of a PC, images, and the virtualization that it emulates. */
  carrierModules: Object.freeze(["virtio_pci", "virtio_net", "virtio_blk", "erofs", "kvm_amd"]),
  moduleParameters: Object.freeze({
    // Guests get no virtualization of their own: less state to save, and less to attack.
    kvm_amd: "nested=0",
  }) as Readonly<Record<string, string>>,
  /** Old entries that stay for the next switch between versions or clones. */
  keepEntries: 4,
  keepEntriesMs: 14 * DAY_MS,
  /** An image takes half a minute to make and a hundred megabytes to keep. */
  keepImages: 24,
});

/** Raised when the same inputs give other files, so that caches of older versions are not used. */
export const FORMAT = Object.freeze({ kernel: 1, initramfs: 1, guestDisk: 1, image: 1 });
