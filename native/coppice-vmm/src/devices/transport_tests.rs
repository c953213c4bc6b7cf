//! Register rules and ring abuse, on the transport that both devices share.

use virtio_bindings::virtio_mmio::*;
use virtio_queue::Queue;

use crate::devices::fixture::{Driver, HIGH, HOLE, NEXT, WRITE};
use crate::devices::ring::{self, Abuse, MAX_CHAIN_BYTES, Step};
use crate::devices::transport::Device;
use crate::memory::Memory;

const SIZE: u16 = 8;

/// Uses every chain and counts what it saw.
#[derive(Default)]
struct Counter {
    chains: usize,
    resets: usize,
}

impl Device for Counter {
    const NAME: &'static str = "counter";
    const ID: u32 = 42;
    const FEATURES: u64 = 1 << 3;
    const QUEUE_SIZES: &'static [u16] = &[SIZE, SIZE];

    fn config(&self) -> &[u8] {
        b"configuration"
    }

    fn reset(&mut self) {
        self.resets += 1;
    }

    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse> {
        ring::serve(&mut queues[index], memory, |_| {
            self.chains += 1;
            Ok(Step::Used(0))
        })
    }
}

#[test]
fn registers_identify_a_version_2_device() {
    let driver = Driver::cold(Counter::default());
    assert_eq!(driver.read(VIRTIO_MMIO_MAGIC_VALUE).to_le_bytes(), *b"virt");
    assert_eq!(
        (driver.read(VIRTIO_MMIO_VERSION), driver.read(VIRTIO_MMIO_DEVICE_ID)),
        (2, 42)
    );
    assert_eq!(driver.read(VIRTIO_MMIO_QUEUE_NUM_MAX), u32::from(SIZE));
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let mut driver = Driver::cold(Counter::default());
    driver.write(VIRTIO_MMIO_STATUS, 3).unwrap();
    driver.write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1).unwrap();
    driver.write(VIRTIO_MMIO_DRIVER_FEATURES, u32::MAX).unwrap();
    driver.write(VIRTIO_MMIO_STATUS, 11).unwrap();
    assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 3);
}

#[test]
fn drivers_of_the_old_interface_are_refused() {
    let mut driver = Driver::cold(Counter::default());
    driver.write(VIRTIO_MMIO_STATUS, 3).unwrap();
    driver.write(VIRTIO_MMIO_STATUS, 11).unwrap();
    assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 3, "VERSION_1 was not taken");
}

#[test]
fn status_bits_out_of_order_are_ignored() {
    for value in [2, 4, 8, 12, 15] {
        let mut driver = Driver::cold(Counter::default());
        driver.write(VIRTIO_MMIO_STATUS, value).unwrap();
        assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 0, "{value}");
    }
    let mut driver = Driver::ready(Counter::default());
    driver.write(VIRTIO_MMIO_STATUS, 3).unwrap();
    assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 15, "bits are cleared by a reset only");
}

#[test]
fn queue_registers_are_frozen_once_the_queue_is_ready_or_the_device_runs() {
    let mut driver = Driver::cold(Counter::default());
    driver.negotiate();
    driver.set_up_queue(0, Driver::<Counter>::rings(0), SIZE);
    // Outside of memory: the device would refuse to start if it were taken.
    driver.write(VIRTIO_MMIO_QUEUE_DESC_HIGH, 0xff).unwrap();
    driver.write(VIRTIO_MMIO_STATUS, 15).unwrap();
    assert_eq!(driver.read(VIRTIO_MMIO_STATUS), 15);

    driver.write(VIRTIO_MMIO_QUEUE_READY, 0).unwrap();
    assert_eq!(driver.read(VIRTIO_MMIO_QUEUE_READY), 1);
    driver.set_up_queue(1, Driver::<Counter>::rings(1), SIZE);
    assert_eq!(driver.read(VIRTIO_MMIO_QUEUE_READY), 0, "queue 1 was set up too late");
}

#[test]
fn queue_sizes_that_are_no_power_of_two_or_too_large_are_ignored() {
    for size in [0, 3, 16, 0x1_0008] {
        let mut driver = Driver::cold(Counter::default());
        driver.negotiate();
        driver.write(VIRTIO_MMIO_QUEUE_NUM, size).unwrap();
        driver.set_up_queue(0, Driver::<Counter>::rings(0), SIZE);
        driver.write(VIRTIO_MMIO_STATUS, 15).unwrap();
        driver.send(0, &[(0x8000, 16, 0, 0)]).unwrap();
        assert_eq!(driver.used(0).0, 1, "{size}");
    }
}

#[test]
fn rings_outside_of_memory_end_the_vm_when_the_device_starts() {
    for rings in [HOLE - 0x1000, HOLE, HIGH + (1 << 20), 1 << 40, u64::MAX - 0xfff] {
        let mut driver = Driver::cold(Counter::default());
        driver.negotiate();
        driver.set_up_queue(0, rings, SIZE);
        let result = driver.write(VIRTIO_MMIO_STATUS, 15);
        assert!(
            matches!(
                result,
                Err(Abuse::RingAddress {
                    device: "counter",
                    queue: 0
                })
            ),
            "{rings:#x}: {result:?}"
        );
    }
}

#[test]
fn registers_that_do_not_exist_or_are_cut_read_0_and_ignore_writes() {
    let mut driver = Driver::cold(Counter::default());
    for (offset, length) in [(0x1, 4), (0x0, 1), (0x0, 8), (0xfff, 4), (0x110, 4), (u64::MAX, 8)] {
        let mut data = vec![0xaa; length];
        driver.transport.read(offset, &mut data);
        assert!(data.iter().all(|byte| *byte == 0), "{offset:#x}");
        driver.transport.write(offset, &data, &driver.memory).unwrap();
    }
}

#[test]
fn configuration_reads_are_cut_at_its_end() {
    let driver = Driver::cold(Counter::default());
    let mut data = [0xaa; 8];
    driver.transport.read(0x100 + 10, &mut data);
    assert_eq!(&data, b"ion\0\0\0\0\0");
}

#[test]
fn kicks_before_the_device_runs_or_of_queues_that_do_not_exist_do_nothing() {
    let mut cold = Driver::cold(Counter::default());
    cold.kick(0).unwrap();
    let mut driver = Driver::ready(Counter::default());
    for queue in [2, 100, u32::MAX as usize] {
        driver.kick(queue).unwrap();
    }
    assert_eq!(driver.transport.device.chains, 0);
}

#[test]
fn used_chain_raises_the_line_until_it_is_acknowledged() {
    let mut driver = Driver::ready(Counter::default());
    driver.send(0, &[(0x8000, 16, 0, 0)]).unwrap();
    assert!(driver.transport.line());
    assert_eq!(driver.read(VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING);
    driver.write(VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING).unwrap();
    assert!(!driver.transport.line());
}

#[test]
fn reset_returns_everything_to_the_start() {
    let mut driver = Driver::ready(Counter::default());
    driver.send(0, &[(0x8000, 16, 0, 0)]).unwrap();
    driver.write(VIRTIO_MMIO_STATUS, 0).unwrap();
    assert_eq!(
        (driver.read(VIRTIO_MMIO_STATUS), driver.read(VIRTIO_MMIO_QUEUE_READY)),
        (0, 0)
    );
    assert!(!driver.transport.line());
    assert_eq!(driver.transport.device.resets, 1);
    driver.kick(0).unwrap();
    assert_eq!(driver.transport.device.chains, 1);
}

#[test]
fn chains_that_loop_leave_the_table_or_never_end_end_the_vm() {
    let full: Vec<_> = (0..SIZE).map(|index| (0x8000, 16, NEXT, (index + 1) % SIZE)).collect();
    for descriptors in [
        vec![(0x8000, 16, NEXT, 0)],
        vec![(0x8000, 16, NEXT, 1), (0x8000, 16, NEXT, 0)],
        vec![(0x8000, 16, NEXT, SIZE)],
        vec![(0x8000, 16, NEXT, u16::MAX)],
        full,
    ] {
        let mut driver = Driver::ready(Counter::default());
        let result = driver.send(0, &descriptors);
        assert!(
            matches!(result, Err(Abuse::BrokenChain { head: 0 })),
            "{descriptors:?}: {result:?}"
        );
    }
}

#[test]
fn indirect_tables_that_are_broken_nested_or_too_long_end_the_vm() {
    const INDIRECT: u16 = 4;
    for (entry, table) in [
        ((HOLE, 32, INDIRECT, 0), (0, 0, 0, 0)),
        ((0x8000, 17, INDIRECT, 0), (0x9000, 16, 0, 0)),
        ((0x8000, 0, INDIRECT, 0), (0x9000, 16, 0, 0)),
        ((0x8000, 16, INDIRECT, 0), (0x8000, 16, INDIRECT, 0)),
        ((0x8000, 0x10_0000, INDIRECT, 0), (0x9000, 16, NEXT, 0)),
    ] {
        let mut driver = Driver::ready(Counter::default());
        let (address, length, flags, next): (u64, u32, u16, u16) = table;
        let bytes = [
            &address.to_le_bytes()[..],
            &length.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ]
        .concat();
        driver.put(0x8000, &bytes);
        let result = driver.send(0, &[entry]);
        assert!(
            matches!(result, Err(Abuse::BrokenChain { .. })),
            "{entry:?}: {result:?}"
        );
    }
}

#[test]
fn chains_longer_than_the_limit_end_the_vm() {
    for descriptors in [
        vec![(0, u32::MAX, 0, 0)],
        vec![(0, MAX_CHAIN_BYTES as u32, NEXT, 1), (0, 1, WRITE, 0)],
        vec![(0, u32::MAX, NEXT, 1), (0, u32::MAX, 0, 0)],
    ] {
        let mut driver = Driver::ready(Counter::default());
        assert!(driver.send(0, &descriptors).is_err(), "{descriptors:?}");
    }
}

#[test]
fn readable_buffer_behind_a_writable_one_ends_the_vm() {
    let mut driver = Driver::ready(Counter::default());
    let result = driver.send(0, &[(0x8000, 16, NEXT | WRITE, 1), (0x8000, 16, 0, 0)]);
    assert!(matches!(result, Err(Abuse::Order { head: 0 })), "{result:?}");
}

#[test]
fn available_index_that_is_ahead_by_more_than_the_queue_ends_the_vm() {
    let mut driver = Driver::ready(Counter::default());
    driver.set_available_index(0, SIZE + 1);
    assert!(matches!(driver.kick(0), Err(Abuse::Ring(_))));
}

#[test]
fn head_outside_of_the_table_ends_the_vm() {
    let mut driver = Driver::ready(Counter::default());
    driver.offer(0, SIZE);
    assert!(driver.kick(0).is_err());
}

#[test]
fn full_ring_is_served_in_one_kick() {
    let mut driver = Driver::ready(Counter::default());
    driver.table(0, &[(0x8000, 16, 0, 0); SIZE as usize]);
    (0..SIZE).for_each(|head| driver.offer(0, head));
    driver.kick(0).unwrap();
    assert_eq!(driver.used(0), (SIZE, u32::from(SIZE) - 1, 0));
}
