//! The writable disk, past the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Outcome;

pub const DEVICE: &str = "/dev/vdb";

const BLOCK: usize = 4096;
const CHUNK_BLOCKS: u64 = 64;

/// Where the log lies: a ring of blocks, each with its record's number.
const LOG_START: u64 = 5000;
const LOG_BLOCKS: u64 = 48;

/// Number of the last record that the disk has acknowledged.
static ACKNOWLEDGED: AtomicU64 = AtomicU64::new(0);

#[repr(align(4096))]
struct Buffer([u8; BLOCK * CHUNK_BLOCKS as usize]);

fn open() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(DEVICE)
}

pub fn write(first: u64, count: u64, byte: u8) -> Outcome<()> {
    let (disk, buffer) = (open()?, Box::new(Buffer([byte; BLOCK * CHUNK_BLOCKS as usize])));
    for start in (0..count).step_by(CHUNK_BLOCKS as usize) {
        let blocks = (count - start).min(CHUNK_BLOCKS) as usize;
        disk.write_all_at(&buffer.0[..blocks * BLOCK], (first + start) * BLOCK as u64)?;
    }
    Ok(disk.sync_all()?)
}

/// One byte a block, which must be full of it.
pub fn read(first: u64, count: u64) -> Outcome<Vec<u8>> {
    let (disk, mut buffer) = (open()?, Box::new(Buffer([0; BLOCK * CHUNK_BLOCKS as usize])));
    let mut bytes = Vec::new();
    for block in first..first + count {
        disk.read_exact_at(&mut buffer.0[..BLOCK], block * BLOCK as u64)?;
        let byte = buffer.0[0];
        if buffer.0[..BLOCK].iter().any(|other| *other != byte) {
            return Err(format!("block {block} is mixed").into());
        }
        bytes.push(byte);
    }
    Ok(bytes)
}

pub fn discard(first: u64, count: u64) -> Outcome<()> {
    /// `BLKDISCARD`
    const DISCARD: libc::c_ulong = 0x1277;
    let range = [first * BLOCK as u64, count * BLOCK as u64];
    let disk = open()?;
    // SAFETY: the call reads two numbers, which live as long as it.
    match unsafe { libc::ioctl(disk.as_raw_fd(), DISCARD as _, range.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Writes records for ever.
pub fn start_log() {
    std::thread::spawn(|| {
        let Ok(disk) = open() else { return };
        let mut buffer = Box::new(Buffer([0; BLOCK * CHUNK_BLOCKS as usize]));
        for record in 1u64.. {
            buffer.0[..8].copy_from_slice(&record.to_le_bytes());
            let at = (LOG_START + record % LOG_BLOCKS) * BLOCK as u64;
            if disk.write_all_at(&buffer.0[..BLOCK], at).is_err() {
                return;
            }
            ACKNOWLEDGED.store(record, Ordering::SeqCst);
        }
    });
}

/// Checks that all records which were acknowledged, and not overwritten since, are on the disk. The last one's number.
pub fn check_log() -> Outcome<u64> {
    let (disk, mut buffer) = (open()?, Box::new(Buffer([0; BLOCK * CHUNK_BLOCKS as usize])));
    let last = ACKNOWLEDGED.load(Ordering::SeqCst);
    for record in last.saturating_sub(LOG_BLOCKS - 1).max(1)..=last {
        disk.read_exact_at(&mut buffer.0[..BLOCK], (LOG_START + record % LOG_BLOCKS) * BLOCK as u64)?;
        let found = buffer.0[..8]
            .iter()
            .rev()
            .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        if found < record || found % LOG_BLOCKS != record % LOG_BLOCKS {
            return Err(format!("record {record} is lost: {found} is in its place").into());
        }
    }
    Ok(last)
}
