//! Files that hold blocks. Each life writes to one of its own, and reads those of its ancestors.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use coppice_wire::blank::BLOCK_BYTES;
use nix::sys::statfs::fstatfs;

use crate::devices::disk::map::Place;

/// How many times the disk's size a life's file may reach. More than once, because what a checkpoint may know is never
/// overwritten.
pub const FILE_BYTES_PER_DISK_BYTE: u64 = 16;

/// Blocks (4 MiB) that are handed out before it is looked again how much the host has left. So much of the reserve each
/// life may take at worst.
const LOOK_BLOCKS: u32 = 1 << 10;

/// Pieces of a life's file that are remembered for reuse. The space of those above is the host's again, their numbers
/// are lost.
const FREE_RUNS_MAX: usize = 16 << 10;

/// What the lives of a disk may take of the host's.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Blocks of one life's file.
    file_blocks: u32,
    /// What must stay available in the file system that the files lie in.
    reserve_bytes: u64,
}

impl Bounds {
    pub fn new(disk_blocks: u64, reserve_bytes: u64) -> Self {
        let blocks = disk_blocks.saturating_mul(FILE_BYTES_PER_DISK_BYTE);
        Self {
            file_blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            reserve_bytes,
        }
    }
}

/// One file, as all lives that know it see it.
#[derive(Clone)]
struct Extent {
    /// Can't be written through: it stays when the life that wrote it is over.
    file: Arc<File>,
    /// Blocks of this life's disk that lie in it. Without any it is let go.
    live: u64,
}

/// The file that this life writes to.
#[derive(Clone)]
struct Own {
    number: u16,
    file: Arc<File>,
    /// Where it goes on.
    next: u32,
    /// Pieces below that no block lies in any more, and none that a checkpoint knows.
    free: Vec<Run>,
    /// The host was seen to have space for so many blocks more.
    seen: u32,
    /// Blocks below may belong to a checkpoint.
    epoch: u32,
}

/// Blocks of a file, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub start: u32,
    pub length: u32,
}

impl Run {
    pub fn bytes(self) -> usize {
        self.length as usize * BLOCK_BYTES
    }

    pub fn offset(self) -> u64 {
        u64::from(self.start) * BLOCK_BYTES as u64
    }
}

#[derive(Clone)]
pub struct Extents {
    bounds: Bounds,
    files: Vec<Option<Extent>>,
    own: Option<Own>,
}

impl Extents {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            files: Vec::new(),
            own: None,
        }
    }

    /// Takes a file that others have written; its number.
    pub fn add(&mut self, file: File) -> u16 {
        let extent = Some(Extent {
            file: Arc::new(file),
            live: 0,
        });
        let number = match self.files.iter().position(Option::is_none) {
            Some(free) => {
                self.files[free] = extent;
                free
            }
            None => {
                self.files.push(extent);
                self.files.len() - 1
            }
        };
        // Flattening keeps them few.
        number as u16
    }

    /// Takes the file that this life will write to, open for writing and once more for reading.
    pub fn add_own(&mut self, writable: File, readable: File) {
        let number = self.add(readable);
        self.own = Some(Own {
            number,
            file: Arc::new(writable),
            next: 0,
            free: Vec::new(),
            seen: 0,
            epoch: 0,
        });
    }

    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Never to be written by this process or its children again.
    pub fn close_own(&mut self) {
        if let Some(own) = self.own.take() {
            self.let_go_if_unused(own.number);
        }
    }

    /// What was written until now belongs to a checkpoint.
    pub fn begin_epoch(&mut self) {
        if let Some(own) = &mut self.own {
            own.epoch = own.next;
            // Below the epoch they could be used once.
            own.free = Vec::new();
        }
    }

    /// Whether nobody else can know the block.
    pub fn may_overwrite(&self, place: Place) -> bool {
        self.own
            .as_ref()
            .is_some_and(|own| place.extent == own.number && place.block >= own.epoch)
    }

    /// Blocks of this life's file that are nobody's: the number of the file, and at most `length` blocks, at least one.
    pub fn allocate(&mut self, length: u32) -> io::Result<(u16, Run)> {
        let bounds = self.bounds;
        let own = self.own.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if length > own.seen {
            require_space(&own.file, bounds.reserve_bytes)?;
            own.seen = LOOK_BLOCKS.max(length);
        }
        let run = match own.free.pop() {
            Some(free) => {
                let length = length.min(free.length);
                if length < free.length {
                    own.free.push(Run {
                        start: free.start + length,
                        length: free.length - length,
                    });
                }
                Run { length, ..free }
            }
            None => {
                let start = own.next;
                let end = start.checked_add(length).filter(|end| *end <= bounds.file_blocks);
                own.next = end.ok_or(io::ErrorKind::FileTooLarge)?;
                Run { start, length }
            }
        };
        own.seen -= run.length;
        Ok((own.number, run))
    }

    pub fn own_file(&self) -> io::Result<&File> {
        let own = self.own.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(&own.file)
    }

    pub fn file(&self, number: u16) -> io::Result<&File> {
        let extent = self.files.get(usize::from(number)).and_then(Option::as_ref);
        Ok(&extent.ok_or(io::ErrorKind::NotFound)?.file)
    }

    /// One more block of the disk lies in a file.
    pub fn retain(&mut self, number: u16) {
        if let Some(Some(extent)) = self.files.get_mut(usize::from(number)) {
            extent.live += 1;
        }
    }

    /// One less; the last takes the file with it.
    pub fn release(&mut self, number: u16) {
        if let Some(Some(extent)) = self.files.get_mut(usize::from(number)) {
            extent.live = extent.live.saturating_sub(1);
        }
        self.let_go_if_unused(number);
    }

    /// A file that no block was ever in is let go by nobody else.
    pub fn let_go_if_unused(&mut self, number: u16) {
        let is_own = self.own.as_ref().is_some_and(|own| own.number == number);
        if let Some(slot) = self.files.get_mut(usize::from(number))
            && !is_own
            && slot.as_ref().is_some_and(|extent| extent.live == 0)
        {
            *slot = None;
        }
    }

    /// Gives blocks back that nobody else can know. Where the file system can't make holes, the space stays taken.
    pub fn give_back(&mut self, run: Run) {
        let Some(own) = &mut self.own else { return };
        if own.free.len() < FREE_RUNS_MAX {
            own.free.push(run);
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes integers only.
        unsafe {
            libc::fallocate(
                own.file.as_raw_fd(),
                mode,
                run.offset() as libc::off_t,
                run.bytes() as libc::off_t,
            )
        };
    }

    /// Files that ancestors wrote.
    pub fn inherited(&self) -> usize {
        self.files.iter().flatten().count() - usize::from(self.has_own())
    }

    /// The file of an ancestor that holds the fewest blocks of this disk, and how many.
    pub fn smallest_inherited(&self) -> Option<(u16, u64)> {
        let own = self.own.as_ref().map(|own| own.number);
        let numbered = (0u16..).zip(&self.files);
        numbered
            .filter(|(number, _)| Some(*number) != own)
            .filter_map(|(number, extent)| Some((number, extent.as_ref()?.live)))
            .min_by_key(|(_, live)| *live)
    }

    /// Copies one block of another file into this life's.
    pub fn copy(&self, from: Place, to: u32) -> io::Result<()> {
        let mut block = [0; BLOCK_BYTES];
        let offset = |number: u32| u64::from(number) * BLOCK_BYTES as u64;
        self.file(from.extent)?.read_exact_at(&mut block, offset(from.block))?;
        self.own_file()?.write_all_at(&block, offset(to))
    }
}

/// Fails where the file system of `file` has less than `bytes` available. One that does not say, as that of files in
/// memory, is left to the host's own limits.
fn require_space(file: &File, bytes: u64) -> io::Result<()> {
    let space = fstatfs(file)?;
    let available = space.blocks_available().saturating_mul(space.block_size() as u64);
    match space.blocks() > 0 && available < bytes {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}
