//! virtio-blk, read-only: the image that all sandboxes of a template share.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use virtio_bindings::virtio_blk::*;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::Queue;
use vm_memory::{GuestMemoryBackend, VolatileSlice};

use crate::devices::ring::{self, Abuse, Buffer, Chain, Step};
use crate::devices::transport::Device;
use crate::memory::Memory;

/// What `GET_ID` answers; the guest finds the disk by it whatever its name.
pub const IMAGE_SERIAL: &str = "coppice-image";

const SECTOR_BYTES: u64 = 512;
const QUEUE_SIZE: u16 = 128;
/// Data buffers of one request: the queue's size without header and status.
const SEGMENTS_MAX: u32 = QUEUE_SIZE as u32 - 2;
const HEADER_BYTES: usize = 16;
/// The driver reads status 1 byte behind the data.
const STATUS_BYTES: usize = 1;

/// virtio_blk_config up to seg_max.
const CONFIG_BYTES: usize = 16;

/// A read-only disk over a file or a block device.
pub struct Block {
    file: File,
    sectors: u64,
    config: [u8; CONFIG_BYTES],
}

impl Block {
    /// Opens the image. What follows the last whole sector is not visible to the guest.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let sectors = file.seek(SeekFrom::End(0))? / SECTOR_BYTES;
        let mut config = [0; CONFIG_BYTES];
        config[..8].copy_from_slice(&sectors.to_le_bytes());
        config[12..16].copy_from_slice(&SEGMENTS_MAX.to_le_bytes());
        Ok(Self { file, sectors, config })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn request(&self, chain: &Chain, memory: &Memory) -> Result<u32, Abuse> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        let room = chain.writable_bytes();
        if room < STATUS_BYTES {
            return Err(Abuse::NoRoom { head: chain.head });
        }
        if chain.readable_bytes() != HEADER_BYTES {
            // Also every write request: its data would follow the header.
            return complete(chain, memory, room - STATUS_BYTES, 0, VIRTIO_BLK_S_UNSUPP);
        }
        chain.read_into(memory, &mut header)?;
        let data = room - STATUS_BYTES;
        let (written, status) = match u32::from_le_bytes([header[0], header[1], header[2], header[3]]) {
            VIRTIO_BLK_T_IN => self.read(chain, memory, data, sector(&header))?,
            VIRTIO_BLK_T_FLUSH => (0, VIRTIO_BLK_S_OK),
            VIRTIO_BLK_T_GET_ID => {
                let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
                id[..IMAGE_SERIAL.len()].copy_from_slice(IMAGE_SERIAL.as_bytes());
                (chain.write_at(memory, 0, &id[..data.min(id.len())])?, VIRTIO_BLK_S_OK)
            }
            _ => (0, VIRTIO_BLK_S_UNSUPP),
        };
        complete(chain, memory, data, written, status)
    }

    fn read(&self, chain: &Chain, memory: &Memory, bytes: usize, sector: u64) -> Result<(usize, u32), Abuse> {
        let whole = (bytes as u64).is_multiple_of(SECTOR_BYTES);
        let end = sector.checked_add(bytes as u64 / SECTOR_BYTES);
        if !whole || end.is_none_or(|end| end > self.sectors) {
            return Ok((0, VIRTIO_BLK_S_IOERR));
        }
        let (mut offset, mut left) = (sector * SECTOR_BYTES, bytes);
        for buffer in &chain.writable {
            let take = left.min(buffer.length as usize);
            if self.read_buffer(memory, buffer, take, offset)?.is_err() {
                return Ok((0, VIRTIO_BLK_S_IOERR));
            }
            offset += take as u64;
            left -= take;
        }
        Ok((bytes, VIRTIO_BLK_S_OK))
    }

    /// The outer error is the guest's fault, the inner one the file's.
    fn read_buffer(
        &self,
        memory: &Memory,
        buffer: &Buffer,
        bytes: usize,
        mut offset: u64,
    ) -> Result<io::Result<()>, Abuse> {
        for slice in GuestMemoryBackend::get_slices(memory, buffer.address, bytes) {
            let slice = slice.map_err(|_| Abuse::Address {
                address: buffer.address.0,
                length: buffer.length,
            })?;
            if let Err(error) = read_exact_at(&self.file, &slice, offset) {
                return Ok(Err(error));
            }
            offset += slice.len() as u64;
        }
        Ok(Ok(()))
    }
}

impl Device for Block {
    const NAME: &'static str = "block";
    const ID: u32 = VIRTIO_ID_BLOCK;
    const FEATURES: u64 = 1 << VIRTIO_BLK_F_RO | 1 << VIRTIO_BLK_F_SEG_MAX | 1 << VIRTIO_BLK_F_FLUSH;
    const QUEUE_SIZES: &'static [u16] = &[QUEUE_SIZE];

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn reset(&mut self) {}

    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse> {
        ring::serve(&mut queues[index], memory, |chain| {
            Ok(Step::Used(self.request(chain, memory)?))
        })
    }
}

fn sector(header: &[u8]) -> u64 {
    header[8..HEADER_BYTES]
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Writes the status byte behind `data` bytes; what the used ring says was written.
fn complete(chain: &Chain, memory: &Memory, data: usize, written: usize, status: u32) -> Result<u32, Abuse> {
    chain.write_at(memory, data, &[status as u8])?;
    Ok((written + STATUS_BYTES) as u32)
}

fn read_exact_at(file: &File, slice: &VolatileSlice<'_>, offset: u64) -> io::Result<()> {
    let guard = slice.ptr_guard_mut();
    let mut done = 0;
    while done < slice.len() {
        // SAFETY: the guard keeps `slice.len()` bytes writable from its pointer, and `done` is below that. The bytes
        // are guest memory, which nothing borrows as a Rust reference.
        let read = unsafe {
            libc::pread(
                file.as_raw_fd(),
                guard.as_ptr().add(done).cast(),
                slice.len() - done,
                (offset + done as u64) as libc::off_t,
            )
        };
        match read {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read if read > 0 => done += read as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}
