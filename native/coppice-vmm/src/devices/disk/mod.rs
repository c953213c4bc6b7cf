//! virtio-blk, writable: a disk whose contents fork with the machine.
//!
//! What a request has written is as safe as it will ever be when the request is done: a disk lives and dies with the
//! processes that hold it. So the device has no cache to flush, and says so by not offering the feature.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use coppice_wire::blank::{BLOCK_BYTES, Blank, BlankError, number};
use virtio_bindings::virtio_blk::*;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::Queue;

use crate::devices::request::{self, QUEUE_SIZE, Request, SECTOR_BYTES, SEGMENTS_MAX};
use crate::devices::ring::{self, Abuse, Chain, Step, Turn};
use crate::devices::transport::Device;
use crate::memory::Memory;

mod changes;
mod extents;
mod map;
mod store;

use store::Store;

/// What `GET_ID` answers; the guest finds the disk by it whatever its name.
pub const DISK_SERIAL: &str = "coppice-disk";

const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

/// Sectors of one discard, 128 MiB: larger ones come in several requests, so that each is short.
const DISCARD_SECTORS_MAX: u32 = 128 << 11;

/// What it costs to discard a block, in bytes that are moved in the same time.
const DISCARD_BLOCK_BYTES: usize = 256;

/// virtio_blk_discard_write_zeroes: first sector, number of sectors, flags.
const SEGMENT_BYTES: usize = 16;
/// Flag of write-zeroes: it may unmap, which all of ours do.
const UNMAP: u64 = 1;

/// virtio_blk_config up to write_zeroes_may_unmap.
const CONFIG_BYTES: usize = 60;

/// A file to write to.
pub struct Extent {
    pub writable: File,
    /// The same file; what is kept when this life is over.
    pub readable: File,
}

impl Extent {
    pub fn new(writable: OwnedFd, readable: OwnedFd) -> Self {
        Self {
            writable: writable.into(),
            readable: readable.into(),
        }
    }
}

/// What a disk holds at first.
pub struct BlankFile {
    index: Blank,
    file: File,
}

impl BlankFile {
    pub fn open(file: OwnedFd) -> Result<Self, BlankError> {
        let file = File::from(file);
        let index = Blank::read(io::BufReader::new(&file), file.metadata()?.len())?;
        Ok(Self { index, file })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Most bytes of a file that one life of this disk writes to.
    pub fn extent_bytes_max(&self) -> u64 {
        let bytes = self.index.disk_blocks * BLOCK_BYTES as u64;
        bytes.saturating_mul(extents::FILE_BYTES_PER_DISK_BYTE)
    }
}

/// The file that a life needs to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    /// Nobody needs one, or it is here.
    Settled,
    /// A request waits for one.
    Wanted,
    /// And the daemon knows.
    Asked,
    /// What has waited fails; the next request asks again.
    Refused,
}

/// What became of a request.
enum Done {
    With {
        written: usize,
        status: u32,
    },
    /// It can't be served before there is a file to write to.
    Waits,
}

const OK: Done = Done::With {
    written: 0,
    status: VIRTIO_BLK_S_OK,
};
const IO_ERROR: Done = Done::With {
    written: 0,
    status: VIRTIO_BLK_S_IOERR,
};
const UNSUPPORTED: Done = Done::With {
    written: 0,
    status: VIRTIO_BLK_S_UNSUPP,
};

#[derive(Clone)]
pub struct Disk {
    store: Store,
    config: [u8; CONFIG_BYTES],
    supply: Supply,
    /// A request was left in the ring until there is a file.
    is_stalled: bool,
    turn: Turn,
}

impl Disk {
    /// The only queue.
    pub const QUEUE: usize = 0;

    /// `reserve_bytes`: what it leaves of the file system that its extents lie in.
    pub fn new(blank: BlankFile, reserve_bytes: u64) -> Self {
        let store = Store::new(&blank.index, blank.file, reserve_bytes);
        let mut config = [0; CONFIG_BYTES];
        let sectors = store.blocks() * BLOCK_SECTORS;
        config[..8].copy_from_slice(&sectors.to_le_bytes());
        for (at, value) in [
            (12, SEGMENTS_MAX),
            (20, BLOCK_BYTES as u32),
            // Discard and write-zeroes: sectors, segments, and what discards are aligned to.
            (36, DISCARD_SECTORS_MAX),
            (40, 1),
            (44, BLOCK_SECTORS as u32),
            (48, DISCARD_SECTORS_MAX),
            (52, 1),
        ] {
            config[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        config[56] = 1; // write_zeroes_may_unmap
        Self {
            store,
            config,
            supply: Supply::Settled,
            is_stalled: false,
            turn: Turn::default(),
        }
    }

    /// Blocks that were written since the base was made.
    pub fn delta_blocks(&self) -> u64 {
        self.store.delta_blocks()
    }

    /// A new life: it has changed nothing yet.
    pub fn begin_life(&mut self) {
        self.store.begin_life();
    }

    /// Runs of blocks that were written or discarded since the life began.
    pub fn changed(&self) -> Vec<(u64, u64)> {
        self.store.changed()
    }

    /// A request waits in the ring for a file to write to.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// A request waits in the ring for the next turn.
    pub fn is_unfinished(&self) -> bool {
        self.turn.is_over()
    }

    /// True once where the daemon is to be asked for an extent.
    pub fn take_extent_wish(&mut self) -> bool {
        let wanted = self.supply == Supply::Wanted;
        if wanted {
            self.supply = Supply::Asked;
        }
        wanted
    }

    /// The daemon's answer; `None`: there is none. Whether it was waited for, so that the queue has to be served.
    pub fn take_extent(&mut self, extent: Option<Extent>) -> bool {
        if self.supply != Supply::Asked {
            return false;
        }
        self.supply = match extent {
            Some(Extent { writable, readable }) => {
                self.store.adopt(writable, readable);
                Supply::Settled
            }
            None => Supply::Refused,
        };
        true
    }

    /// What was written until now stays as it is: a copy of this process knows it, or is about to.
    pub fn begin_epoch(&mut self) {
        self.store.begin_epoch();
    }

    /// This process becomes a checkpoint. Its children ask for extents of their own.
    pub fn freeze(&mut self) {
        self.store.freeze();
        self.supply = Supply::Settled;
    }

    fn request(&mut self, request: &Request<'_>, memory: &Memory) -> Result<Done, Abuse> {
        match request.kind {
            VIRTIO_BLK_T_IN => self.read(request, memory),
            VIRTIO_BLK_T_OUT => self.write(request, memory),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => self.discard(request, memory),
            VIRTIO_BLK_T_FLUSH => Ok(OK),
            VIRTIO_BLK_T_GET_ID => Ok(Done::With {
                written: request.give_id(memory, DISK_SERIAL)?,
                status: VIRTIO_BLK_S_OK,
            }),
            _ => Ok(UNSUPPORTED),
        }
    }

    fn read(&mut self, request: &Request<'_>, memory: &Memory) -> Result<Done, Abuse> {
        let bytes = request.room;
        let Some(blocks) = self.blocks(request.sector, bytes as u64) else {
            return Ok(IO_ERROR);
        };
        let mut data = request.data_wanted(memory)?;
        Ok(match self.store.read(blocks, &mut data) {
            Ok(()) => Done::With {
                written: bytes,
                status: VIRTIO_BLK_S_OK,
            },
            Err(_) => IO_ERROR,
        })
    }

    fn write(&mut self, request: &Request<'_>, memory: &Memory) -> Result<Done, Abuse> {
        let Some(blocks) = self.blocks(request.sector, request.sent as u64) else {
            return Ok(IO_ERROR);
        };
        // Looked at before anything waits: what is wrong ends the VM now.
        let mut data = request.data_sent(memory)?;
        if !self.store.is_writable() {
            return Ok(match self.supply {
                Supply::Refused => IO_ERROR,
                _ => Done::Waits,
            });
        }
        Ok(match self.store.write(blocks, &mut data) {
            Ok(()) => OK,
            Err(_) => IO_ERROR,
        })
    }

    /// Also write-zeroes: a block that is forgotten reads as zeros.
    fn discard(&mut self, request: &Request<'_>, memory: &Memory) -> Result<Done, Abuse> {
        let mut segment = [0; SEGMENT_BYTES];
        if request.sent != SEGMENT_BYTES {
            return Ok(UNSUPPORTED);
        }
        request.copy_sent(memory, &mut segment)?;
        let (sector, sectors, flags) = (number(&segment[..8]), number(&segment[8..12]), number(&segment[12..]));
        let known = match request.kind {
            VIRTIO_BLK_T_WRITE_ZEROES => UNMAP,
            _ => 0,
        };
        if flags & !known != 0 || sectors > u64::from(DISCARD_SECTORS_MAX) {
            return Ok(UNSUPPORTED);
        }
        let Some(blocks) = self.blocks(sector, sectors * SECTOR_BYTES) else {
            return Ok(IO_ERROR);
        };
        self.turn
            .spend((blocks.end - blocks.start) as usize * DISCARD_BLOCK_BYTES);
        self.store.discard(blocks);
        Ok(OK)
    }

    /// Whole blocks of this disk, or nothing.
    fn blocks(&self, sector: u64, bytes: u64) -> Option<Range<u64>> {
        let whole = sector.is_multiple_of(BLOCK_SECTORS) && bytes.is_multiple_of(BLOCK_BYTES as u64);
        let first = sector / BLOCK_SECTORS;
        let end = first.checked_add(bytes / BLOCK_BYTES as u64)?;
        (whole && end <= self.store.blocks()).then_some(first..end)
    }

    fn serve(&mut self, chain: &Chain, memory: &Memory) -> Result<Step, Abuse> {
        if !self.turn.take(chain.readable_bytes() + chain.writable_bytes()) {
            return Ok(Step::Stop);
        }
        let Some(request) = Request::read(chain, memory)? else {
            return Ok(Step::Used(request::refuse(chain, memory, VIRTIO_BLK_S_UNSUPP)?));
        };
        match self.request(&request, memory)? {
            Done::With { written, status } => Ok(Step::Used(request.complete(memory, written, status)?)),
            Done::Waits => {
                self.is_stalled = true;
                if self.supply == Supply::Settled {
                    self.supply = Supply::Wanted;
                }
                Ok(Step::Stop)
            }
        }
    }
}

impl Device for Disk {
    const NAME: &'static str = "disk";
    const ID: u32 = VIRTIO_ID_BLOCK;
    const FEATURES: u64 = 1 << VIRTIO_BLK_F_SEG_MAX
        | 1 << VIRTIO_BLK_F_BLK_SIZE
        | 1 << VIRTIO_BLK_F_DISCARD
        | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
    const QUEUE_SIZES: &'static [u16] = &[QUEUE_SIZE];

    fn config(&self) -> &[u8] {
        &self.config
    }

    /// The contents stay; what waited is forgotten with its ring.
    fn reset(&mut self) {
        self.is_stalled = false;
        self.turn = Turn::default();
    }

    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse> {
        self.is_stalled = false;
        self.turn.begin();
        let interrupt = ring::serve(&mut queues[index], memory, |chain| self.serve(chain, memory))?;
        if self.supply == Supply::Refused {
            self.supply = Supply::Settled;
        }
        Ok(interrupt)
    }
}
