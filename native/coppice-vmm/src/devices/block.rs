//! virtio-blk, read-only: the image that all sandboxes of a template share.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use virtio_bindings::virtio_blk::*;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::Queue;

use crate::devices::request::{self, QUEUE_SIZE, Request, SECTOR_BYTES, SEGMENTS_MAX};
use crate::devices::ring::{self, Abuse, Chain, Step, Turn};
use crate::devices::transport::Device;
use crate::memory::Memory;

/// What `GET_ID` answers; the guest finds the disk by it whatever its name.
pub const IMAGE_SERIAL: &str = "coppice-image";

/// virtio_blk_config up to seg_max.
const CONFIG_BYTES: usize = 16;

/// A read-only disk over a file or a block device.
#[derive(Clone)]
pub struct Block {
    file: Arc<File>,
    sectors: u64,
    config: [u8; CONFIG_BYTES],
    turn: Turn,
}

impl Block {
    /// The only queue.
    pub const QUEUE: usize = 0;

    /// Opens the image. What follows the last whole sector is not visible to the guest.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let sectors = file.seek(SeekFrom::End(0))? / SECTOR_BYTES;
        let mut config = [0; CONFIG_BYTES];
        config[..8].copy_from_slice(&sectors.to_le_bytes());
        config[12..16].copy_from_slice(&SEGMENTS_MAX.to_le_bytes());
        Ok(Self {
            file: Arc::new(file),
            sectors,
            config,
            turn: Turn::default(),
        })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A request waits in the ring for the next turn.
    pub fn is_unfinished(&self) -> bool {
        self.turn.is_over()
    }

    fn request(&self, chain: &Chain, memory: &Memory) -> Result<u32, Abuse> {
        // Whatever sends more than a header would write.
        let Some(request) = Request::read(chain, memory)?.filter(|request| request.sent == 0) else {
            return request::refuse(chain, memory, VIRTIO_BLK_S_UNSUPP);
        };
        let (written, status) = match request.kind {
            VIRTIO_BLK_T_IN => self.read(&request, memory)?,
            VIRTIO_BLK_T_FLUSH => (0, VIRTIO_BLK_S_OK),
            VIRTIO_BLK_T_GET_ID => (request.give_id(memory, IMAGE_SERIAL)?, VIRTIO_BLK_S_OK),
            _ => (0, VIRTIO_BLK_S_UNSUPP),
        };
        request.complete(memory, written, status)
    }

    fn read(&self, request: &Request<'_>, memory: &Memory) -> Result<(usize, u32), Abuse> {
        let bytes = request.room;
        let whole = (bytes as u64).is_multiple_of(SECTOR_BYTES);
        let end = request.sector.checked_add(bytes as u64 / SECTOR_BYTES);
        if !whole || end.is_none_or(|end| end > self.sectors) {
            return Ok((0, VIRTIO_BLK_S_IOERR));
        }
        let mut data = request.data_wanted(memory)?;
        match data.read_from(&self.file, request.sector * SECTOR_BYTES, bytes) {
            Ok(()) => Ok((bytes, VIRTIO_BLK_S_OK)),
            Err(_) => Ok((0, VIRTIO_BLK_S_IOERR)),
        }
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

    fn reset(&mut self) {
        self.turn = Turn::default();
    }

    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse> {
        self.turn.begin();
        ring::serve(&mut queues[index], memory, |chain| {
            match self.turn.take(chain.writable_bytes()) {
                true => Ok(Step::Used(self.request(chain, memory)?)),
                false => Ok(Step::Stop),
            }
        })
    }
}
