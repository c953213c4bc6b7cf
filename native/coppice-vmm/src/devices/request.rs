//! Requests of virtio-blk, as every disk here reads them.

use virtio_bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;

use crate::devices::ring::{Abuse, Chain};
use crate::devices::scatter::Scatter;
use crate::memory::Memory;

pub const SECTOR_BYTES: u64 = 512;
pub const QUEUE_SIZE: u16 = 128;
/// Data buffers of one request: the queue's size without header and status.
pub const SEGMENTS_MAX: u32 = QUEUE_SIZE as u32 - 2;

const HEADER_BYTES: usize = 16;
/// The driver reads status 1 byte behind the data.
const STATUS_BYTES: usize = 1;

/// One request: what it wants, and where its data are.
pub struct Request<'a> {
    chain: &'a Chain,
    pub kind: u32,
    pub sector: u64,
    /// Bytes that the driver sends beside the header.
    pub sent: usize,
    /// Bytes that it has room for beside the status.
    pub room: usize,
}

impl<'a> Request<'a> {
    /// `None`: it has no whole header, for which `refuse` is the answer. Without room for a status there is no answer.
    pub fn read(chain: &'a Chain, memory: &Memory) -> Result<Option<Self>, Abuse> {
        let room = chain.writable_bytes();
        let room = room.checked_sub(STATUS_BYTES);
        let room = room.ok_or(Abuse::NoRoom { head: chain.head })?;
        let Some(sent) = chain.readable_bytes().checked_sub(HEADER_BYTES) else {
            return Ok(None);
        };
        let mut header = [0; HEADER_BYTES];
        chain.read_at(memory, 0, &mut header)?;
        let [a, b, c, d, _, _, _, _, sector @ ..] = header;
        Ok(Some(Self {
            chain,
            kind: u32::from_le_bytes([a, b, c, d]),
            sector: u64::from_le_bytes(sector),
            sent,
            room,
        }))
    }

    /// Copies what the driver sends.
    pub fn copy_sent(&self, memory: &Memory, bytes: &mut [u8]) -> Result<(), Abuse> {
        self.chain.read_at(memory, HEADER_BYTES, bytes)
    }

    /// The bytes to write to the disk.
    pub fn data_sent(&self, memory: &Memory) -> Result<Scatter, Abuse> {
        Scatter::new(memory, &self.chain.readable, HEADER_BYTES, self.sent)
    }

    /// Where to put bytes that were read.
    pub fn data_wanted(&self, memory: &Memory) -> Result<Scatter, Abuse> {
        Scatter::to_fill(memory, &self.chain.writable, self.room)
    }

    /// The answer to `GET_ID`: how much of it there was room for.
    pub fn give_id(&self, memory: &Memory, serial: &str) -> Result<usize, Abuse> {
        let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
        id[..serial.len()].copy_from_slice(serial.as_bytes());
        self.chain.write_at(memory, 0, &id[..self.room.min(id.len())])
    }

    /// Writes the status; what the used ring says was written.
    pub fn complete(&self, memory: &Memory, written: usize, status: u32) -> Result<u32, Abuse> {
        put_status(self.chain, memory, self.room, status)?;
        Ok((written + STATUS_BYTES) as u32)
    }
}

/// The answer to a chain that holds no request.
pub fn refuse(chain: &Chain, memory: &Memory, status: u32) -> Result<u32, Abuse> {
    put_status(chain, memory, chain.writable_bytes() - STATUS_BYTES, status)?;
    Ok(STATUS_BYTES as u32)
}

fn put_status(chain: &Chain, memory: &Memory, at: usize, status: u32) -> Result<(), Abuse> {
    chain.write_at(memory, at, &[status as u8]).map(drop)
}
