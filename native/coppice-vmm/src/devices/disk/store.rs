//! The contents of a disk: map and files together, and what a checkpoint means to them.
//!
//! A block that this life has written since its last checkpoint is overwritten where it is. Everything else may be known
//! to a checkpoint, so that what is written goes to a new place, and only the map changes.

use std::fs::File;
use std::io;
use std::ops::Range;

use coppice_wire::blank::{BLOCK_BYTES, Blank};

use crate::devices::disk::changes::Changes;
use crate::devices::disk::extents::{Bounds, Extents, Run};
use crate::devices::disk::map::{Map, Place};
use crate::devices::scatter::Scatter;

/// Files of ancestors that a life may go on with. Above it the smallest are copied into its own, down to half.
pub const INHERITED_MAX: usize = 32;

/// From so many on the smallest is copied as a whole, however large: else their number would grow with depth.
pub const INHERITED_LIMIT: usize = 40;

/// Blocks that flattening copies at once (64 MiB), so that the guest does not wait for long.
const FLATTEN_BLOCKS: u64 = 16 << 10;

#[derive(Clone)]
pub struct Store {
    map: Map,
    extents: Extents,
    /// What is written from now on belongs to the delta.
    has_base: bool,
    delta_blocks: u64,
    changes: Changes,
    /// Blocks that flattening copies at once.
    flatten_blocks: u64,
}

impl Store {
    /// A disk with the contents of a blank one, which leaves the host's file system `reserve_bytes`.
    pub fn new(blank: &Blank, file: File, reserve_bytes: u64) -> Self {
        let mut store = Self {
            map: Map::new(blank.disk_blocks),
            extents: Extents::new(Bounds::new(blank.disk_blocks, reserve_bytes)),
            has_base: false,
            delta_blocks: 0,
            changes: Changes::default(),
            flatten_blocks: FLATTEN_BLOCKS,
        };
        let extent = store.extents.add(file);
        for (block, place) in (blank.first_data_block()..).zip(&blank.places) {
            store.put(
                u64::from(*place),
                Place {
                    block,
                    extent,
                    is_delta: false,
                },
            );
        }
        store.extents.let_go_if_unused(extent);
        store
    }

    pub fn blocks(&self) -> u64 {
        self.map.blocks()
    }

    /// Blocks that were written since the base was made.
    pub fn delta_blocks(&self) -> u64 {
        self.delta_blocks
    }

    /// A new life: it has changed nothing yet.
    pub fn begin_life(&mut self) {
        self.changes = Changes::default();
    }

    /// Runs of blocks that this life, or the one that ended here, has written or discarded.
    pub fn changed(&self) -> Vec<(u64, u64)> {
        self.changes.runs()
    }

    /// Whether this life can write.
    pub fn is_writable(&self) -> bool {
        self.extents.has_own()
    }

    /// Takes the file that this life will write to.
    pub fn adopt(&mut self, writable: File, readable: File) {
        self.extents.add_own(writable, readable);
        // Where that fails, the host is short of space: the blocks stay where they are, and the next life tries again.
        let _ = self.flatten();
    }

    /// A copy of this process has been made, or is about to be.
    pub fn begin_epoch(&mut self) {
        self.extents.begin_epoch();
    }

    /// This process writes no more: from here on it is a checkpoint.
    pub fn freeze(&mut self) {
        self.extents.close_own();
        self.has_base = true;
    }

    pub fn read(&self, blocks: Range<u64>, data: &mut Scatter) -> io::Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let place = self.map.get(block);
            let mut length = 1;
            while block + u64::from(length) < blocks.end
                && self.map.get(block + u64::from(length)) == after(place, length)
            {
                length += 1;
            }
            match place {
                None => data.zero(length as usize * BLOCK_BYTES),
                Some(Place { block, extent, .. }) => {
                    let run = Run { start: block, length };
                    data.read_from(self.extents.file(extent)?, run.offset(), run.bytes())?;
                }
            }
            block += u64::from(length);
        }
        Ok(())
    }

    /// Writes whole blocks. What was overwritten until it failed stays so, as on any disk.
    pub fn write(&mut self, blocks: Range<u64>, data: &mut Scatter) -> io::Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let here = self.overwritable(block);
            let mut length = 1;
            while block + u64::from(length) < blocks.end
                && self.overwritable(block + u64::from(length)) == after(here, length)
            {
                length += 1;
            }
            match here {
                Some(place) => {
                    let run = Run {
                        start: place.block,
                        length,
                    };
                    data.write_to(self.extents.own_file()?, run.offset(), run.bytes())?;
                }
                None => length = self.write_anew(block, length, data)?,
            }
            (block..block + u64::from(length)).for_each(|block| self.changes.insert(block));
            block += u64::from(length);
        }
        Ok(())
    }

    /// Forgets blocks: they read as zeros, and what nobody else knows is given back.
    pub fn discard(&mut self, blocks: Range<u64>) {
        let mut hole: Option<Run> = None;
        let mut from = blocks.start;
        while let Some((block, place)) = self.map.next_mapped(from..blocks.end) {
            if self.extents.may_overwrite(place) {
                hole = match hole {
                    Some(run) if run.start + run.length == place.block => Some(Run {
                        length: run.length + 1,
                        ..run
                    }),
                    other => {
                        other.into_iter().for_each(|run| self.extents.give_back(run));
                        Some(Run {
                            start: place.block,
                            length: 1,
                        })
                    }
                };
            }
            let before = self.map.unset(block);
            self.forget(before);
            self.changes.insert(block);
            from = block + 1;
        }
        hole.into_iter().for_each(|run| self.extents.give_back(run));
    }

    /// The place of a block that may be written where it is.
    fn overwritable(&self, block: u64) -> Option<Place> {
        self.map.get(block).filter(|place| self.extents.may_overwrite(*place))
    }

    /// Writes as many of the blocks as have a place in one piece, and says how many.
    fn write_anew(&mut self, block: u64, length: u32, data: &mut Scatter) -> io::Result<u32> {
        let (extent, run) = self.extents.allocate(length)?;
        if let Err(error) = data.write_to(self.extents.own_file()?, run.offset(), run.bytes()) {
            self.extents.give_back(run);
            return Err(error);
        }
        for index in 0..run.length {
            let place = Place {
                block: run.start + index,
                extent,
                is_delta: self.has_base,
            };
            self.put(block + u64::from(index), place);
        }
        Ok(run.length)
    }

    fn put(&mut self, block: u64, place: Place) {
        self.extents.retain(place.extent);
        self.delta_blocks += u64::from(place.is_delta);
        let before = self.map.set(block, place);
        self.forget(before);
    }

    fn forget(&mut self, before: Option<Place>) {
        if let Some(place) = before {
            self.delta_blocks -= u64::from(place.is_delta);
            self.extents.release(place.extent);
        }
    }

    /// Keeps the number of files small, however deep the tree.
    fn flatten(&mut self) -> io::Result<()> {
        if self.extents.inherited() <= INHERITED_MAX {
            return Ok(());
        }
        let mut copied = 0;
        while self.extents.inherited() > INHERITED_MAX / 2 {
            let Some((extent, live)) = self.extents.smallest_inherited() else {
                break;
            };
            if copied > 0 && copied + live > self.flatten_blocks {
                break;
            }
            let most = match self.extents.inherited() < INHERITED_LIMIT {
                true => live.min(self.flatten_blocks),
                false => live,
            };
            self.take_over(extent, most)?;
            copied += live.max(1);
        }
        Ok(())
    }

    /// Copies the first `blocks` blocks of a file into this life's own.
    fn take_over(&mut self, extent: u16, blocks: u64) -> io::Result<()> {
        let (mut from, mut left) = (0, blocks);
        while let Some((block, place)) = self.map.next_mapped(from..self.map.blocks()).filter(|_| left > 0) {
            if place.extent == extent {
                left -= 1;
                let (own, run) = self.extents.allocate(1)?;
                self.extents.copy(place, run.start)?;
                let copy = Place {
                    block: run.start,
                    extent: own,
                    ..place
                };
                self.put(block, copy);
            }
            from = block + 1;
        }
        Ok(())
    }
}

/// What the block `distance` further must be to lie in one run with the first.
fn after(first: Option<Place>, distance: u32) -> Option<Place> {
    first.map(|place| Place {
        block: place.block.wrapping_add(distance),
        ..place
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
