//! Requests of all kinds to the writable disk, good and bad, and what happens without a file to write to.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use coppice_wire::blank::{BLOCK_BYTES, Blank};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::devices::disk::{BlankFile, DISK_SERIAL, Disk, Extent};
use crate::devices::fixture::{Driver, HIGH, HOLE, NEXT, WRITE};
use crate::devices::ring::Abuse;

const HEADER: u64 = 0x8_0000;
const STATUS: u64 = 0x8_1000;
const DATA: u64 = 0x9_0000;

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;
/// Not written yet.
const NONE: u8 = 0xff;

const IN: u32 = 0;
const OUT: u32 = 1;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const BLOCKS: u64 = 1000;
const BLOCK: u32 = BLOCK_BYTES as u32;
const SECTORS: u64 = BLOCKS * 8;

fn memory_file() -> File {
    File::from(memfd_create(c"extent", MFdFlags::empty()).unwrap())
}

fn extent() -> Extent {
    let writable = memory_file();
    let readable = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd())).unwrap();
    Extent { writable, readable }
}

/// A disk whose block 2 is full of 0xb2, without a file to write to.
fn read_only() -> Driver<Disk> {
    let (file, disk_blocks) = (memory_file(), BLOCKS);
    let blank = Blank {
        disk_blocks,
        places: vec![2],
    };
    file.write_all_at(&blank.encode(&[[0xb2; BLOCK_BYTES]]), 0).unwrap();
    Driver::ready(Disk::new(BlankFile::open(file.into()).unwrap(), 0))
}

fn disk() -> Driver<Disk> {
    let mut driver = read_only();
    assert_eq!(write(&mut driver, 0, 0), NONE);
    give(&mut driver, Some(extent()));
    driver
}

fn give(driver: &mut Driver<Disk>, extent: Option<Extent>) {
    assert!(driver.transport.device.take_extent_wish());
    if driver.transport.device.take_extent(extent) {
        driver.transport.serve(Disk::QUEUE, &driver.memory).unwrap();
    }
}

fn header(driver: &Driver<Disk>, kind: u32, sector: u64) {
    let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
    driver.put(HEADER, &header);
    driver.put(STATUS, &[NONE]);
}

/// The status of a request with one data buffer.
fn request(driver: &mut Driver<Disk>, kind: u32, sector: u64, data: u32) -> u8 {
    header(driver, kind, sector);
    let direction = if kind == IN { WRITE } else { 0 };
    let chain = [
        (HEADER, 16, NEXT, 1),
        (DATA, data, NEXT | direction, 2),
        (STATUS, 1, WRITE, 0),
    ];
    driver.send(0, &chain).unwrap();
    driver.bytes(STATUS, 1)[0]
}

/// Writes a block full of `byte`.
fn write(driver: &mut Driver<Disk>, block: u64, byte: u8) -> u8 {
    driver.put(DATA, &[byte; BLOCK_BYTES]);
    request(driver, OUT, block * 8, BLOCK)
}

/// What a block is full of.
fn read(driver: &mut Driver<Disk>, block: u64) -> u8 {
    driver.put(DATA, &[0xee; BLOCK_BYTES]);
    assert_eq!(request(driver, IN, block * 8, BLOCK), OK);
    let bytes = driver.bytes(DATA, BLOCK_BYTES);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

fn segment(driver: &mut Driver<Disk>, kind: u32, sector: u64, sectors: u32, flags: u32) -> u8 {
    let segment = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat();
    driver.put(DATA, &segment);
    request(driver, kind, 0, 16)
}

#[test]
fn disk_without_a_file_to_write_to_can_be_read_and_discarded() {
    let mut driver = read_only();
    assert_eq!((read(&mut driver, 2), read(&mut driver, 3)), (0xb2, 0));
    assert_eq!(segment(&mut driver, DISCARD, 16, 8, 0), OK);
    assert_eq!(read(&mut driver, 2), 0);
    assert!(!driver.transport.device.take_extent_wish());
}

#[test]
fn write_waits_for_a_file_and_is_done_when_it_comes() {
    let mut driver = read_only();
    assert_eq!(write(&mut driver, 7, 0x17), NONE);
    assert!(driver.transport.device.is_stalled());
    let used = driver.used(0).0;
    driver.kick(0).unwrap();
    assert_eq!(driver.used(0).0, used, "a second kick changes nothing");
    give(&mut driver, Some(extent()));
    assert_eq!((driver.bytes(STATUS, 1)[0], driver.used(0).0), (OK, used + 1));
    assert!(!driver.transport.device.is_stalled());
    assert_eq!(read(&mut driver, 7), 0x17);
    assert!(!driver.transport.device.take_extent_wish(), "one file is enough");
}

#[test]
fn write_that_gets_no_file_fails_and_the_next_one_asks_again() {
    let mut driver = read_only();
    assert_eq!(write(&mut driver, 7, 1), NONE);
    give(&mut driver, None);
    assert_eq!(driver.bytes(STATUS, 1), [IO_ERROR]);
    assert_eq!(write(&mut driver, 7, 2), NONE);
    give(&mut driver, Some(extent()));
    assert_eq!(read(&mut driver, 7), 2);
}

#[test]
fn file_that_nobody_asked_for_is_not_taken() {
    let mut driver = read_only();
    assert!(!driver.transport.device.take_extent(Some(extent())));
    assert_eq!(write(&mut driver, 7, 1), NONE);
    driver.transport.device.take_extent_wish();
    driver.transport.device.freeze();
    assert!(
        !driver.transport.device.take_extent(Some(extent())),
        "late: it is frozen"
    );
}

#[test]
fn write_that_waited_through_a_checkpoint_is_done_in_the_next_life() {
    let mut driver = read_only();
    assert_eq!(write(&mut driver, 7, 0x17), NONE);
    assert!(driver.transport.device.take_extent_wish());
    driver.transport.device.freeze();
    driver.transport.serve(Disk::QUEUE, &driver.memory).unwrap();
    give(&mut driver, Some(extent()));
    assert_eq!((driver.bytes(STATUS, 1)[0], read(&mut driver, 7)), (OK, 0x17));
}

#[test]
fn write_on_a_full_host_is_an_io_error() {
    let mut driver = read_only();
    assert_eq!(write(&mut driver, 7, 1), NONE);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let readable = memory_file();
    give(
        &mut driver,
        Some(Extent {
            writable: full,
            readable,
        }),
    );
    assert_eq!(driver.bytes(STATUS, 1), [IO_ERROR]);
    assert_eq!(read(&mut driver, 7), 0);
}

#[test]
fn data_may_share_a_buffer_with_the_header_and_be_scattered() {
    let mut driver = disk();
    header(&driver, OUT, 80);
    driver.put(HEADER + 16, &[0x31; 84]);
    driver.put(HIGH, &[0x31; 4000]);
    driver.put(DATA, &[0x31; 12]);
    let chain = [
        (HEADER, 100, NEXT, 1),
        (HIGH, 4000, NEXT, 2),
        (DATA, 12, NEXT, 3),
        (STATUS, 1, WRITE, 0),
    ];
    driver.send(0, &chain).unwrap();
    assert_eq!((driver.bytes(STATUS, 1)[0], driver.used(0).2), (OK, 1));
    assert_eq!(read(&mut driver, 10), 0x31);
}

#[test]
fn requests_beyond_the_end_or_of_cut_blocks_are_io_errors() {
    let mut driver = disk();
    for kind in [IN, OUT] {
        for (sector, bytes) in [
            (SECTORS, BLOCK),
            (SECTORS - 8, 2 * BLOCK),
            (u64::MAX, BLOCK),
            (u64::MAX - 7, BLOCK),
            (u64::MAX / 512, BLOCK),
            (1, BLOCK),
            (0, 512),
            (0, BLOCK + 512),
        ] {
            assert_eq!(
                request(&mut driver, kind, sector, bytes),
                IO_ERROR,
                "{kind} {sector} {bytes}"
            );
        }
        assert_eq!(request(&mut driver, kind, SECTORS - 8, BLOCK), OK);
    }
}

#[test]
fn discard_and_write_zeroes_make_zeros() {
    let mut driver = disk();
    for (kind, flags) in [(DISCARD, 0), (WRITE_ZEROES, 0), (WRITE_ZEROES, 1)] {
        for block in 20..23 {
            assert_eq!(write(&mut driver, block, 0x55), OK);
        }
        assert_eq!(segment(&mut driver, kind, 21 * 8, 8, flags), OK);
        assert_eq!(
            [20, 21, 22].map(|block| read(&mut driver, block)),
            [0x55, 0, 0x55],
            "{kind}"
        );
    }
}

#[test]
fn segments_that_are_wrong_are_refused() {
    let mut driver = disk();
    for (sector, sectors, flags, status) in [
        (SECTORS, 8, 0, IO_ERROR),
        (u64::MAX - 7, 8, 0, IO_ERROR),
        (1, 8, 0, IO_ERROR),
        (0, 1, 0, IO_ERROR),
        (0, u32::MAX, 0, UNSUPPORTED),
        (0, 8, 2, UNSUPPORTED),
    ] {
        for kind in [DISCARD, WRITE_ZEROES] {
            assert_eq!(
                segment(&mut driver, kind, sector, sectors, flags),
                status,
                "{kind} {sector} {sectors}"
            );
        }
    }
    assert_eq!(
        segment(&mut driver, DISCARD, 0, 8, 1),
        UNSUPPORTED,
        "unmap is no flag of discards"
    );
    for length in [0, 15, 17, 32] {
        assert_eq!(request(&mut driver, DISCARD, 0, length), UNSUPPORTED, "{length}");
    }
}

#[test]
fn unknown_requests_are_unsupported_and_a_flush_is_done() {
    let mut driver = disk();
    for kind in [2, 5, 6, 14, 99, u32::MAX] {
        assert_eq!(request(&mut driver, kind, 0, 512), UNSUPPORTED, "{kind}");
    }
    assert_eq!(request(&mut driver, 4, 0, 0), OK);
}

#[test]
fn identity_is_the_serial() {
    let mut driver = disk();
    header(&driver, 8, 0);
    let chain = [
        (HEADER, 16, NEXT, 1),
        (DATA, 20, NEXT | WRITE, 2),
        (STATUS, 1, WRITE, 0),
    ];
    driver.send(0, &chain).unwrap();
    assert_eq!(driver.bytes(DATA, DISK_SERIAL.len()), DISK_SERIAL.as_bytes());
}

#[test]
fn chains_without_header_or_status_are_refused() {
    let mut driver = disk();
    for length in [0, 1, 15] {
        header(&driver, IN, 0);
        driver
            .send(0, &[(HEADER, length, NEXT, 1), (STATUS, 1, WRITE, 0)])
            .unwrap();
        assert_eq!(driver.bytes(STATUS, 1), [UNSUPPORTED], "{length}");
    }
    header(&driver, OUT, 0);
    let no_status = driver.send(0, &[(HEADER, 16, NEXT, 1), (DATA, BLOCK, 0, 0)]);
    assert!(matches!(no_status, Err(Abuse::NoRoom { .. })));
}

#[test]
fn buffers_outside_of_memory_end_the_vm() {
    for driver in [&mut disk(), &mut read_only()] {
        for (header_at, data_at, status_at) in [
            (HOLE, DATA, STATUS),
            (HEADER, HOLE - 8, STATUS),
            (HEADER, u64::MAX - 8, STATUS),
        ] {
            for (kind, direction) in [(IN, WRITE), (OUT, 0)] {
                header(driver, kind, 0);
                let chain = [
                    (header_at, 16, NEXT, 1),
                    (data_at, BLOCK, NEXT | direction, 2),
                    (status_at, 1, WRITE, 0),
                ];
                let sent = driver.send(0, &chain);
                assert!(matches!(sent, Err(Abuse::Address { .. })), "{kind} {chain:x?}");
            }
        }
    }
}

#[test]
fn reset_forgets_what_waited_and_keeps_the_contents() {
    let mut driver = disk();
    assert_eq!(write(&mut driver, 7, 0x17), OK);
    driver.transport.device.freeze();
    assert_eq!(write(&mut driver, 8, 0x18), NONE);
    driver
        .write(virtio_bindings::virtio_mmio::VIRTIO_MMIO_STATUS, 0)
        .unwrap();
    assert!(!driver.transport.device.is_stalled());
    give(&mut driver, Some(extent()));
    assert_eq!(driver.bytes(STATUS, 1), [NONE]);
}

#[test]
fn ring_of_large_requests_is_served_in_turns() {
    let mut driver = disk();
    let (before, ..) = driver.used(0);
    header(&driver, IN, 0);
    let mebibyte = 1 << 20;
    driver.table(
        0,
        &[
            (HEADER, 16, NEXT, 1),
            (HIGH, mebibyte, NEXT | WRITE, 2),
            (HIGH, mebibyte, NEXT | WRITE, 3),
            (HIGH, mebibyte, NEXT | WRITE, 4),
            (STATUS, 1, WRITE, 0),
        ],
    );
    (0..7).for_each(|_| driver.offer(0, 0));
    driver.kick(0).unwrap();
    let mut served = vec![driver.used(0).0 - before];
    while driver.transport.device.is_unfinished() {
        driver.transport.serve(Disk::QUEUE, &driver.memory).unwrap();
        served.push(driver.used(0).0 - before);
    }
    assert_eq!(served, [3, 6, 7], "8 MiB and what was begun each");
    assert_eq!(driver.bytes(STATUS, 1), [OK]);
}

#[test]
fn reset_forgets_what_was_left_for_the_next_turn() {
    let mut driver = disk();
    header(&driver, IN, 0);
    let chain = [
        (HEADER, 16, NEXT, 1),
        (HIGH, 1 << 20, NEXT | WRITE, 2),
        (STATUS, 1, WRITE, 0),
    ];
    driver.table(0, &chain);
    (0..20).for_each(|_| driver.offer(0, 0));
    driver.kick(0).unwrap();
    assert!(driver.transport.device.is_unfinished() && driver.transport.can_serve(Disk::QUEUE));
    driver
        .write(virtio_bindings::virtio_mmio::VIRTIO_MMIO_STATUS, 0)
        .unwrap();
    assert!(!driver.transport.device.is_unfinished());
}
