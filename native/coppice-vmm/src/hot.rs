//! Which pages children of a template write first, so that later children get their private copies before they run.
//!
//! A page that a running guest writes for the first time costs two nested page faults, a copy and a flush of the
//! guest's translations; copied before the VM exists it costs the copy. Siblings begin alike, so that the pages of one
//! that has done its first work are a good guess for the next.
//!
//! The list lies in memory that a template shares with its children: they write it, the template and later children
//! read it. It is a hint and no more: whatever is in there, a reader takes at most `MAX_PAGES` numbers of pages that
//! exist, and copying a page early changes nothing that its guest can see.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::PAGE_BYTES;

/// Most pages of a list, 1 MiB. A child that has written more has gone its own way.
const MAX_PAGES: usize = 256;

/// Larger guests are not looked at: the look takes time in proportion to their size.
const MAX_GUEST_BYTES: u64 = 4 << 30;

const ENTRY_BYTES: usize = 8;
const ENTRIES_AT_ONCE: usize = 4096;

// Bits of a page map entry.
const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// How far the child had come whose pages are listed. Later ones replace earlier ones, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// It has taken on its identity.
    Begun = 1,
    /// It was used, and its life is at its end.
    Used = 2,
}

#[repr(C)]
struct Shared {
    progress: AtomicU32,
    length: AtomicU32,
    pages: [AtomicU32; MAX_PAGES],
}

/// The list of one template.
pub struct HotPages {
    shared: NonNull<Shared>,
}

impl HotPages {
    /// An empty list in memory that forked children share.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing object.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(mapping.cast::<Shared>()) {
            Some(shared) if mapping != libc::MAP_FAILED => Ok(Self { shared }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping lives until `drop`, is large enough and page-aligned, began as zeroes, and holds only
        // atomics, for which any bits are valid and which other processes may change.
        unsafe { self.shared.as_ref() }
    }

    /// The pages that are listed, in ascending order, none at or above `limit`.
    pub fn pages(&self, limit: u32) -> Vec<u32> {
        let shared = self.shared();
        let length = (shared.length.load(Ordering::Acquire) as usize).min(MAX_PAGES);
        let mut pages: Vec<u32> = shared.pages[..length]
            .iter()
            .map(|page| page.load(Ordering::Relaxed))
            .filter(|page| *page < limit)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Lists the pages that the template itself started with. Children then have copies of them whether they write them
    /// or not, so that they could only ever make the list longer: they are not asked.
    pub fn inherit(&self, pages: &[u32]) {
        if !pages.is_empty() {
            self.shared().progress.store(Progress::Used as u32, Ordering::Relaxed);
            self.write(pages);
        }
    }

    /// Whether a child that has come so far knows more than the list does.
    pub fn wants(&self, progress: Progress) -> bool {
        self.shared().progress.load(Ordering::Relaxed) < progress as u32
    }

    /// Lists what this child has written, unless it is too much.
    pub fn learn(&self, progress: Progress, pagemap: &File, host: u64, bytes: u64) -> io::Result<()> {
        if bytes > MAX_GUEST_BYTES || !self.wants(progress) {
            return Ok(());
        }
        if let Some(pages) = own_pages(pagemap, host, bytes)? {
            self.shared().progress.store(progress as u32, Ordering::Relaxed);
            self.write(&pages);
        }
        Ok(())
    }

    fn write(&self, pages: &[u32]) {
        let shared = self.shared();
        let pages = &pages[..pages.len().min(MAX_PAGES)];
        for (slot, page) in shared.pages.iter().zip(pages) {
            slot.store(*page, Ordering::Relaxed);
        }
        shared.length.store(pages.len() as u32, Ordering::Release);
    }
}

impl Drop for HotPages {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nothing refers to any more.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// Pages of a range that this process alone has, from the page map; `None` where they are more than a list holds.
fn own_pages(map: &File, host: u64, bytes: u64) -> io::Result<Option<Vec<u32>>> {
    let total = (bytes / PAGE_BYTES) as usize;
    let mut pages = Vec::new();
    let mut buffer = vec![0; ENTRIES_AT_ONCE * ENTRY_BYTES];
    for start in (0..total).step_by(ENTRIES_AT_ONCE) {
        let part = &mut buffer[..ENTRIES_AT_ONCE.min(total - start) * ENTRY_BYTES];
        map.read_exact_at(part, (host / PAGE_BYTES + start as u64) * ENTRY_BYTES as u64)?;
        for (page, entry) in (start as u32..).zip(part.as_chunks::<ENTRY_BYTES>().0) {
            if is_own(u64::from_ne_bytes(*entry)) {
                if pages.len() == MAX_PAGES {
                    return Ok(None);
                }
                pages.push(page);
            }
        }
    }
    Ok(Some(pages))
}

/// Whether the page is neither the base's nor shared with the template.
fn is_own(entry: u64) -> bool {
    entry & (PRESENT | FILE_OR_SHARED | EXCLUSIVE) == PRESENT | EXCLUSIVE
}

/// Contiguous runs of ascending page numbers, as start and length.
pub fn runs(pages: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    pages
        .chunk_by(|before, after| before + 1 == *after)
        .map(|run| (run[0], run.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_list_gives_back_pages_that_exist_in_order_and_once_and_stays() {
        let hot = HotPages::new().unwrap();
        assert!(hot.pages(u32::MAX).is_empty());
        hot.inherit(&[9, 3, 4, 3, 1000]);
        assert_eq!(hot.pages(1000), [3, 4, 9]);
        assert!(!hot.wants(Progress::Used));
    }

    #[test]
    fn list_whose_length_is_nonsense_is_cut() {
        let hot = HotPages::new().unwrap();
        hot.shared().length.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(hot.pages(u32::MAX), [0]);
    }

    #[test]
    fn runs_of_pages_are_found() {
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]).collect::<Vec<_>>(), [(1, 3), (7, 1), (9, 2)]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn learning_lists_private_pages_and_only_once_for_the_same_progress() {
        let _no_forks = crate::confine::drill::FORKS.write().unwrap();
        let mut ram = crate::memory::GuestRam::new(80).unwrap();
        ram.freeze_base(&crate::lent::Lent::own()).unwrap();
        let touch = |page: u64| {
            use vm_memory::{Bytes, GuestAddress};
            ram.memory().write_obj(1u8, GuestAddress(page * PAGE_BYTES)).unwrap();
        };
        let hot = HotPages::new().unwrap();
        let map = File::open("/proc/self/pagemap").unwrap();
        let learn = |progress| hot.learn(progress, &map, ram.host_address(0), ram.bytes()).unwrap();
        touch(5);
        touch(77);
        learn(Progress::Begun);
        touch(78);
        learn(Progress::Begun);
        assert_eq!(hot.pages(u32::MAX), [5, 77]);
        learn(Progress::Used);
        assert_eq!(hot.pages(u32::MAX), [5, 77, 78]);
        for page in 0..=MAX_PAGES as u64 {
            touch(page);
        }
        let other = HotPages::new().unwrap();
        other
            .learn(Progress::Used, &map, ram.host_address(0), ram.bytes())
            .unwrap();
        assert!(
            other.pages(u32::MAX).is_empty(),
            "a child that has written too much is no guess"
        );
        assert!(other.wants(Progress::Used));
    }
}
