//! A driver for tests: guest memory, rings in it, and a device behind its registers.

use virtio_bindings::virtio_mmio::*;
use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{Bytes, GuestAddress, GuestRegionMmap};

use crate::devices::ring::Abuse;
use crate::devices::transport::{Device, Transport};
use crate::memory::Memory;

/// Guest memory of the tests: 1 MiB from 0, a hole, 1 MiB from 16 MiB.
pub const HOLE: u64 = 1 << 20;
pub const HIGH: u64 = 16 << 20;

pub const NEXT: u16 = VRING_DESC_F_NEXT as u16;
pub const WRITE: u16 = VRING_DESC_F_WRITE as u16;

/// Distance between the rings of two queues; descriptor table, available and used ring lie in it one after the other.
const QUEUE_BYTES: u64 = 0x4000;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

pub fn memory() -> Memory {
    let regions = [0, HIGH].map(|start| {
        let mapping = MmapRegionBuilder::new_with_bitmap(1 << 20, None)
            .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
            .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
            .build()
            .unwrap();
        GuestRegionMmap::new(mapping, GuestAddress(start)).unwrap()
    });
    Memory::from_regions(regions.into()).unwrap()
}

/// `(address, length, flags, next)` of a descriptor.
pub type Descriptor = (u64, u32, u16, u16);

/// A device and its driver's view.
pub struct Driver<D> {
    pub memory: Memory,
    pub transport: Transport<D>,
    available: Vec<u16>,
}

impl<D: Device> Driver<D> {
    /// A device that was not touched yet.
    pub fn cold(device: D) -> Self {
        let transport = Transport::new(device).unwrap();
        Self {
            memory: memory(),
            transport,
            available: vec![0; D::QUEUE_SIZES.len()],
        }
    }

    /// A device that the driver has set up, with all queues at their largest size.
    pub fn ready(device: D) -> Self {
        let mut driver = Self::cold(device);
        driver.negotiate();
        for index in 0..D::QUEUE_SIZES.len() {
            driver.set_up_queue(index, Self::rings(index), D::QUEUE_SIZES[index]);
        }
        driver.write(VIRTIO_MMIO_STATUS, 15).unwrap();
        assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 15);
        driver
    }

    /// Up to and with FEATURES_OK, all features taken.
    pub fn negotiate(&mut self) {
        self.write(VIRTIO_MMIO_STATUS, 1).unwrap();
        self.write(VIRTIO_MMIO_STATUS, 3).unwrap();
        for select in 0..2 {
            self.write(VIRTIO_MMIO_DEVICE_FEATURES_SEL, select).unwrap();
            self.write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, select).unwrap();
            let features = self.read(VIRTIO_MMIO_DEVICE_FEATURES);
            self.write(VIRTIO_MMIO_DRIVER_FEATURES, features).unwrap();
        }
        self.write(VIRTIO_MMIO_STATUS, 11).unwrap();
    }

    pub fn set_up_queue(&mut self, index: usize, rings: u64, size: u16) {
        self.write(VIRTIO_MMIO_QUEUE_SEL, index as u32).unwrap();
        self.write(VIRTIO_MMIO_QUEUE_NUM, size.into()).unwrap();
        for (low, high, address) in [
            (VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_DESC_HIGH, rings),
            (
                VIRTIO_MMIO_QUEUE_AVAIL_LOW,
                VIRTIO_MMIO_QUEUE_AVAIL_HIGH,
                rings + AVAILABLE,
            ),
            (VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_QUEUE_USED_HIGH, rings + USED),
        ] {
            self.write(low, address as u32).unwrap();
            self.write(high, (address >> 32) as u32).unwrap();
        }
        self.write(VIRTIO_MMIO_QUEUE_READY, 1).unwrap();
    }

    pub fn rings(index: usize) -> u64 {
        0x1_0000 + index as u64 * QUEUE_BYTES
    }

    pub fn read(&self, register: u32) -> u32 {
        let mut data = [0; 4];
        self.transport.read(register.into(), &mut data);
        u32::from_le_bytes(data)
    }

    pub fn write(&mut self, register: u32, value: u32) -> Result<(), Abuse> {
        self.transport
            .write(register.into(), &value.to_le_bytes(), &self.memory)
    }

    /// Writes a descriptor table from entry 0 on.
    pub fn table(&self, queue: usize, descriptors: &[Descriptor]) {
        for (index, (address, length, flags, next)) in descriptors.iter().enumerate() {
            let at = Self::rings(queue) + index as u64 * 16;
            self.memory.write_obj(*address, GuestAddress(at)).unwrap();
            self.memory.write_obj(*length, GuestAddress(at + 8)).unwrap();
            self.memory.write_obj(*flags, GuestAddress(at + 12)).unwrap();
            self.memory.write_obj(*next, GuestAddress(at + 14)).unwrap();
        }
    }

    /// Makes the chain that starts at `head` available, without a kick.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let slot = self.available[queue] % D::QUEUE_SIZES[queue];
        let ring = Self::rings(queue) + AVAILABLE;
        self.memory
            .write_obj(head, GuestAddress(ring + 4 + u64::from(slot) * 2))
            .unwrap();
        self.available[queue] = self.available[queue].wrapping_add(1);
        self.set_available_index(queue, self.available[queue]);
    }

    pub fn set_available_index(&self, queue: usize, index: u16) {
        self.memory
            .write_obj(index, GuestAddress(Self::rings(queue) + AVAILABLE + 2))
            .unwrap();
    }

    pub fn kick(&mut self, queue: usize) -> Result<(), Abuse> {
        self.write(VIRTIO_MMIO_QUEUE_NOTIFY, queue as u32)
    }

    /// Writes the table, offers its entry 0 and kicks.
    pub fn send(&mut self, queue: usize, descriptors: &[Descriptor]) -> Result<(), Abuse> {
        self.table(queue, descriptors);
        self.offer(queue, 0);
        self.kick(queue)
    }

    /// How many chains the device has used, and what it said of the last: head and length.
    pub fn used(&self, queue: usize) -> (u16, u32, u32) {
        let ring = Self::rings(queue) + USED;
        let index: u16 = self.memory.read_obj(GuestAddress(ring + 2)).unwrap();
        let slot = u64::from(index.wrapping_sub(1) % D::QUEUE_SIZES[queue]);
        let read = |offset| {
            self.memory
                .read_obj(GuestAddress(ring + 4 + slot * 8 + offset))
                .unwrap()
        };
        (index, read(0), read(4))
    }

    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }
}
