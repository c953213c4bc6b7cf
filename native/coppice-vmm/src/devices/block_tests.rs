//! Requests of all kinds, good and bad.

use std::fs;
use std::path::PathBuf;

use crate::devices::block::{Block, IMAGE_SERIAL};
use crate::devices::fixture::{Driver, HIGH, HOLE, NEXT, WRITE};
use crate::devices::ring::Abuse;

const HEADER: u64 = 0x8_0000;
const STATUS: u64 = 0x8_1000;
const DATA: u64 = 0x9_0000;

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

const SECTORS: u64 = 64;

fn image() -> Vec<u8> {
    (0..SECTORS * 512)
        .map(|index| (index / 512 * 7 + index) as u8)
        .collect()
}

struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn disk(test: &str, extra: usize) -> Driver<Block> {
    let path = std::env::temp_dir().join(format!("coppice-vmm-block-{}-{test}", std::process::id()));
    let mut bytes = image();
    bytes.resize(bytes.len() + extra, 0xee);
    fs::write(&path, bytes).unwrap();
    let path = TempFile(path);
    Driver::ready(Block::open(&path.0).unwrap())
}

fn header(driver: &Driver<Block>, kind: u32, sector: u64) {
    driver.put(
        HEADER,
        &[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat(),
    );
    driver.put(STATUS, &[0xff]);
}

/// A request with one data buffer; its status and how much the used ring says was written.
fn request(driver: &mut Driver<Block>, kind: u32, sector: u64, data: u32) -> (u8, u32) {
    header(driver, kind, sector);
    driver
        .send(
            0,
            &[
                (HEADER, 16, NEXT, 1),
                (DATA, data, NEXT | WRITE, 2),
                (STATUS, 1, WRITE, 0),
            ],
        )
        .unwrap();
    (driver.bytes(STATUS, 1)[0], driver.used(0).2)
}

#[test]
fn read_returns_the_images_bytes() {
    let mut driver = disk("read", 0);
    assert_eq!(request(&mut driver, 0, 3, 1024), (OK, 1025));
    assert_eq!(driver.bytes(DATA, 1024), image()[3 * 512..5 * 512]);
}

#[test]
fn read_into_scattered_buffers_fills_them_in_order() {
    let mut driver = disk("scatter", 0);
    header(&driver, 0, 0);
    let status = DATA + 0x3000;
    driver
        .send(
            0,
            &[
                (HEADER, 16, NEXT, 1),
                (DATA, 100, NEXT | WRITE, 2),
                (HIGH + 8, 700, NEXT | WRITE, 3),
                (DATA + 0x1000, 224, NEXT | WRITE, 4),
                (status, 1, WRITE, 0),
            ],
        )
        .unwrap();
    let got = [
        driver.bytes(DATA, 100),
        driver.bytes(HIGH + 8, 700),
        driver.bytes(DATA + 0x1000, 224),
    ]
    .concat();
    assert_eq!(got, image()[..1024]);
    assert_eq!(driver.bytes(status, 1), [OK]);
}

#[test]
fn reads_beyond_the_end_or_of_cut_sectors_are_io_errors() {
    let mut driver = disk("end", 100);
    for (sector, bytes) in [
        (SECTORS, 512),
        (SECTORS - 1, 1024),
        (u64::MAX, 512),
        (u64::MAX / 512, 512),
        (0, 100),
    ] {
        assert_eq!(
            request(&mut driver, 0, sector, bytes),
            (IO_ERROR, 1),
            "{sector} {bytes}"
        );
    }
    assert_eq!(request(&mut driver, 0, SECTORS - 1, 512), (OK, 513));
}

#[test]
fn writes_and_unknown_requests_are_unsupported() {
    let mut driver = disk("write", 0);
    for kind in [1, 2, 11, 13, 99, u32::MAX] {
        assert_eq!(request(&mut driver, kind, 0, 512), (UNSUPPORTED, 1), "{kind}");
    }
    header(&driver, 1, 0);
    driver
        .send(0, &[(HEADER, 16, NEXT, 1), (DATA, 512, NEXT, 2), (STATUS, 1, WRITE, 0)])
        .unwrap();
    assert_eq!(driver.bytes(STATUS, 1), [UNSUPPORTED]);
}

#[test]
fn flush_is_done_at_once() {
    let mut driver = disk("flush", 0);
    header(&driver, 4, 0);
    driver.send(0, &[(HEADER, 16, NEXT, 1), (STATUS, 1, WRITE, 0)]).unwrap();
    assert_eq!((driver.bytes(STATUS, 1)[0], driver.used(0).2), (OK, 1));
}

#[test]
fn identity_is_the_serial_cut_to_the_buffer() {
    let mut driver = disk("id", 0);
    assert_eq!(request(&mut driver, 8, 0, 20), (OK, 21));
    assert_eq!(&driver.bytes(DATA, 20)[..IMAGE_SERIAL.len()], IMAGE_SERIAL.as_bytes());
    assert_eq!(request(&mut driver, 8, 0, 4), (OK, 5));
}

#[test]
fn request_without_room_for_its_status_ends_the_vm() {
    let mut driver = disk("status", 0);
    for descriptors in [
        vec![(HEADER, 16, 0, 0)],
        vec![(HEADER, 16, NEXT, 1), (STATUS, 0, WRITE, 0)],
    ] {
        assert!(matches!(driver.send(0, &descriptors), Err(Abuse::NoRoom { .. })));
    }
}

#[test]
fn headers_of_a_wrong_size_are_unsupported() {
    let mut driver = disk("header", 0);
    for length in [0, 1, 15, 17] {
        header(&driver, 0, 0);
        driver
            .send(
                0,
                &[
                    (HEADER, length, NEXT, 1),
                    (DATA, 512, NEXT | WRITE, 2),
                    (STATUS, 1, WRITE, 0),
                ],
            )
            .unwrap();
        assert_eq!(driver.bytes(STATUS, 1), [UNSUPPORTED], "{length}");
    }
}

#[test]
fn buffers_outside_of_memory_end_the_vm() {
    let mut driver = disk("hole", 0);
    for (header_at, data_at, status_at) in [(HOLE, DATA, STATUS), (HEADER, HOLE - 8, STATUS), (HEADER, DATA, HOLE)] {
        header(&driver, 0, 0);
        let chain = [
            (header_at, 16, NEXT, 1),
            (data_at, 512, NEXT | WRITE, 2),
            (status_at, 1, WRITE, 0),
        ];
        assert!(
            matches!(driver.send(0, &chain), Err(Abuse::Address { .. })),
            "{chain:x?}"
        );
    }
}

#[test]
fn ring_of_large_requests_is_served_in_turns() {
    let mut driver = disk("turns", 0);
    header(&driver, 0, 0);
    let chain = [
        (HEADER, 16, NEXT, 1),
        (HIGH, 1 << 20, NEXT | WRITE, 2),
        (STATUS, 1, WRITE, 0),
    ];
    driver.table(0, &chain);
    (0..20).for_each(|_| driver.offer(0, 0));
    driver.kick(0).unwrap();
    let mut served = vec![driver.used(0).0];
    while driver.transport.device.is_unfinished() {
        driver.transport.serve(Block::QUEUE, &driver.memory).unwrap();
        served.push(driver.used(0).0);
    }
    assert_eq!(served, [8, 16, 20]);
}
