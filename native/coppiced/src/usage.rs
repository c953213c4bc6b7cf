//! Memory that one VMM process adds to the host.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::Serialize;

use crate::extents::Extents;
use crate::memory::{MemoryError, kib_field, number_field, read, unreadable};

const PAGE_BYTES: u64 = 4096;

/// What the kernel keeps for each thread's stack on x86-64.
const KERNEL_STACK_BYTES: u64 = 16 * 1024;

/// Bytes of `/proc/PID/pagemap` for one page.
const ENTRY_BYTES: u64 = 8;

/// Pages that are looked at with one read.
const BATCH_PAGES: u64 = 32 * 1024;

// Bits of a pagemap entry, see the kernel's Documentation/admin-guide/mm/pagemap.rst.
const EXCLUSIVE: u64 = 1 << 56;
const FILE_OR_SHARED: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

/// Result of `memory.usage`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub private_bytes: u64,
    pub total_bytes: u64,
    pub disk_bytes: u64,
}

/// What one process adds to the host.
///
/// `private_bytes`: anonymous pages that no other process maps, and swapped ones: what the guest wrote since the
/// checkpoint that it came from, and the VMM's own few pages. `total_bytes`: that, and its page tables (`VmPTE`) and the
/// kernel's stacks of its threads. Not counted, because the kernel does not say them for one process: KVM's structures
/// and nested page tables, and the sockets' buffers. Pages of the base and of the checkpoints above belong to those.
///
/// `disk_bytes`: what the files of its guest's disk take, its own and those that it shares with its relatives.
///
/// Reads an entry for every page of the address space: 5 to 20 ms for 512 MiB. Not for the daemon's own thread.
pub fn process_usage(pid: i32, extents: &Extents) -> Result<Usage, MemoryError> {
    let status = read(&format!("/proc/{pid}/status"))?;
    let private_bytes = private_pages(pid)? * PAGE_BYTES;
    let threads = number_field(&status, "Threads:").unwrap_or(1);
    let page_tables = kib_field(&status, "VmPTE:").unwrap_or(0);
    Ok(Usage {
        private_bytes,
        total_bytes: private_bytes + page_tables + threads * KERNEL_STACK_BYTES,
        disk_bytes: extents
            .open_bytes(pid)
            .map_err(|error| unreadable(&format!("/proc/{pid}/fd"), error.to_string()))?,
    })
}

fn private_pages(pid: i32) -> Result<u64, MemoryError> {
    let (maps, path) = (read(&format!("/proc/{pid}/maps"))?, format!("/proc/{pid}/pagemap"));
    let pagemap = File::open(&path).map_err(|error| unreadable(&path, error.to_string()))?;
    let mut batch = vec![0; (BATCH_PAGES * ENTRY_BYTES) as usize];
    let mut private = 0;
    for (start, end) in maps.lines().filter_map(private_range) {
        let mut page = start / PAGE_BYTES;
        while page < end / PAGE_BYTES {
            let wanted = (end / PAGE_BYTES - page).min(BATCH_PAGES) * ENTRY_BYTES;
            let buffer = &mut batch[..wanted as usize];
            // A range may be gone by now; so are its pages.
            let Ok(read @ 1..) = pagemap.read_at(buffer, page * ENTRY_BYTES) else {
                break;
            };
            let (entries, _) = buffer[..read].as_chunks::<8>();
            private += entries
                .iter()
                .filter(|entry| is_private(u64::from_le_bytes(**entry)))
                .count() as u64;
            page += (read as u64).div_ceil(ENTRY_BYTES);
        }
    }
    Ok(private)
}

fn is_private(entry: u64) -> bool {
    let anonymous = entry & (PRESENT | EXCLUSIVE) == PRESENT | EXCLUSIVE && entry & FILE_OR_SHARED == 0;
    anonymous || entry & (SWAPPED | FILE_OR_SHARED) == SWAPPED
}

/// Start and end of a private mapping, from a line of `/proc/PID/maps`: `START-END rwxp …`.
fn private_range(line: &str) -> Option<(u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let is_private = rest.as_bytes().get(3) == Some(&b'p');
    // The vsyscall page is outside of what pagemap has.
    let number = |hex| u64::from_str_radix(hex, 16).ok().filter(|address| *address < 1 << 63);
    Some((number(start)?, number(end)?)).filter(|_| is_private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents() -> Extents {
        Extents::new("/no/extents".into(), None)
    }

    #[test]
    fn usage_given_memory_that_is_written_grows_by_it() {
        let pid = std::process::id() as i32;
        let before = process_usage(pid, &extents()).unwrap();
        let written = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = process_usage(pid, &extents()).unwrap();
        let grown = after.private_bytes - before.private_bytes;
        // Other tests of this process allocate too, though far less.
        assert!((60 << 20..80 << 20).contains(&grown), "{grown}");
        assert!(after.total_bytes > after.private_bytes);
        assert_eq!(written[written.len() - 1], 1);
    }

    #[test]
    fn range_of_a_shared_mapping_or_of_nonsense_is_left_out() {
        assert_eq!(
            private_range("1000-3000 rw-p 00000000 00:00 0 [heap]"),
            Some((0x1000, 0x3000))
        );
        assert_eq!(private_range("1000-3000 rw-s 00000000 00:00 0"), None);
        assert_eq!(private_range("ffffffffff600000-ffffffffff601000 --xp 0 0"), None);
        assert_eq!(private_range("nonsense"), None);
    }

    #[test]
    fn process_that_has_ended_is_an_error_that_names_it() {
        assert!(
            process_usage(i32::MAX, &extents())
                .unwrap_err()
                .to_string()
                .contains("/proc/2147483647/")
        );
    }
}
