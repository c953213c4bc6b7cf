//! In which pages and blocks a frozen machine differs from the one that its life began from.
//!
//! Of the pages their contents decide: one that was written with what it held is no difference. Which pages may differ is
//! known from both processes' page maps: where neither has a page of its own, both have the base's. Of the disk's blocks it
//! counts whether they were written or discarded.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use vm_memory::{Bytes, GuestAddress};

use crate::devices::Disk;
use crate::error::VmmError;
use crate::guest::Guest;
use crate::lent::{Lent, Origin};
use crate::memory::PAGE_BYTES;
use crate::runs;

/// Runs of each kind that an answer may hold, so that it fits in a frame.
const MAX_RUNS: usize = 400_000;

const ENTRY_BYTES: usize = 8;
const ENTRIES_AT_ONCE: usize = 4096;

// Bits of a page map entry.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE_OR_SHARED: u64 = 1 << 61;
/// Of a page that is present, and only for who may know.
const FRAME: u64 = (1 << 55) - 1;

/// Runs as first and length: pages by guest-physical address, and blocks.
pub struct Difference {
    pub pages: Vec<(u64, u64)>,
    pub blocks: Vec<(u64, u64)>,
}

impl Guest {
    pub fn compare(&self, lent: &Lent, origin: &Origin) -> Result<Difference, VmmError> {
        let (Some(own), Some(theirs), Some(memory)) = (lent.pagemap(), &origin.pagemap, &origin.memory) else {
            return Err(VmmError::NotLent { command: "Compare" });
        };
        let mut pages = Vec::new();
        for region in self.ram.regions() {
            let total = region.bytes / PAGE_BYTES;
            for start in (0..total).step_by(ENTRIES_AT_ONCE) {
                let first = self.ram.host_address(region.offset) / PAGE_BYTES + start;
                let count = ENTRIES_AT_ONCE.min((total - start) as usize);
                let entries = |map| read_entries(map, first, count).map_err(failed("Reading a page map"));
                for (page, (own, theirs)) in (start..).zip(entries(own)?.into_iter().zip(entries(theirs)?)) {
                    let (guest, host) = (region.guest / PAGE_BYTES + page, first + page - start);
                    if may_differ(own, theirs) && self.differs(guest, host, memory)? {
                        runs::push(&mut pages, (guest, 1));
                    }
                }
            }
        }
        let blocks = self.devices.disk().map_or_else(Vec::new, Disk::changed);
        if pages.len().max(blocks.len()) > MAX_RUNS {
            return Err(VmmError::Scattered { limit: MAX_RUNS });
        }
        Ok(Difference { pages, blocks })
    }

    fn differs(&self, guest: u64, host: u64, memory: &File) -> Result<bool, VmmError> {
        let (mut own, mut theirs) = ([0; PAGE_BYTES as usize], [0; PAGE_BYTES as usize]);
        let read = self.ram.memory().read_slice(&mut own, GuestAddress(guest * PAGE_BYTES));
        read.map_err(|error| failed("Reading a page")(io::Error::other(error)))?;
        let read = memory.read_exact_at(&mut theirs, host * PAGE_BYTES);
        read.map_err(failed("Reading the origin's memory"))?;
        Ok(own != theirs)
    }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> VmmError {
    move |source| VmmError::Compare { call, source }
}

fn read_entries(map: &File, first: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * ENTRY_BYTES];
    map.read_exact_at(&mut bytes, first * ENTRY_BYTES as u64)?;
    let entries = bytes.as_chunks::<ENTRY_BYTES>().0;
    Ok(entries.iter().map(|entry| u64::from_ne_bytes(*entry)).collect())
}

/// Not where neither process has a page of its own, nor where both have the same.
fn may_differ(own: u64, theirs: u64) -> bool {
    let is_same = own & PRESENT & theirs != 0 && own & FRAME != 0 && own & FRAME == theirs & FRAME;
    (is_private(own) || is_private(theirs)) && !is_same
}

fn is_private(entry: u64) -> bool {
    entry & (PRESENT | SWAPPED) != 0 && entry & FILE_OR_SHARED == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_may_differ_where_one_process_has_its_own() {
        let (file, private) = (PRESENT | FILE_OR_SHARED, PRESENT);
        assert!(!may_differ(0, 0) && !may_differ(file | 7, 0) && !may_differ(file, file));
        assert!(may_differ(private, file) && may_differ(0, private) && may_differ(SWAPPED, 0));
        assert!(!may_differ(private | 7, private | 7));
        assert!(may_differ(private | 7, private | 8));
        assert!(may_differ(private, private), "who may not know the frames has to look");
    }
}
