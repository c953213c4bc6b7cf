//! Guest RAM: one host mapping, shared while the guest boots, private over a sealed base afterwards.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use vm_memory::bitmap::AtomicBitmap;
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionCollectionError, GuestRegionMmap};

use crate::hot;
use crate::lent::Lent;

/// What devices and loaders see of guest RAM. Where it is tracked, it notes the pages that they write.
pub type Memory = GuestMemoryMmap<Option<AtomicBitmap>>;

pub const MIB: u64 = 1 << 20;
pub const PAGE_BYTES: u64 = 4096;
const PAGE: NonZeroUsize = NonZeroUsize::new(PAGE_BYTES as usize).unwrap();

/// Smallest guest: the stock kernel with its initramfs ends in out-of-memory panics below this.
pub const MIN_MEMORY_MIB: u32 = 80;

/// Largest guest (256 GiB): far below what the identity map and the e820 table allow.
pub const MAX_MEMORY_MIB: u32 = 256 * 1024;

/// RAM stops here and goes on at 4 GiB; between lie the interrupt controllers and virtio devices.
pub const MMIO_HOLE_START: u64 = 3 << 30;
pub const MMIO_HOLE_END: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("Guest memory of {mib} MiB is outside {MIN_MEMORY_MIB}..={MAX_MEMORY_MIB}; choose a size in that range")]
    Size { mib: u32 },
    #[error("{what} of guest memory failed: {source}")]
    Host { what: &'static str, source: io::Error },
    #[error("The process whose memory was to be read has ended")]
    OriginGone,
    #[error("Guest memory can't be described: {0}")]
    Region(#[from] MmapRegionError),
    #[error("Guest memory regions don't fit together: {0}")]
    Layout(#[from] GuestRegionCollectionError),
}

/// A contiguous piece of guest-physical RAM and where it lies in the host mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RamRegion {
    pub guest: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// How `bytes` of RAM lie around the MMIO hole.
pub fn layout(bytes: u64) -> Vec<RamRegion> {
    let low = bytes.min(MMIO_HOLE_START);
    let mut regions = vec![RamRegion {
        guest: 0,
        offset: 0,
        bytes: low,
    }];
    if bytes > low {
        regions.push(RamRegion {
            guest: MMIO_HOLE_END,
            offset: low,
            bytes: bytes - low,
        });
    }
    regions
}

/// Guest RAM. Its host address never changes in the life of the process and of everything forked from it.
pub struct GuestRam {
    host: *mut u8,
    bytes: u64,
    file: File,
    memory: Memory,
    /// Anonymous pages of this process when the base was made: the VMM's own, none of the guest's.
    own_anonymous_pages: Option<u64>,
    is_tracked: bool,
}

impl GuestRam {
    /// Fresh, zeroed RAM in a shared mapping of a new memfd.
    pub fn new(mib: u32) -> Result<Self, MemoryError> {
        if !(MIN_MEMORY_MIB..=MAX_MEMORY_MIB).contains(&mib) {
            return Err(MemoryError::Size { mib });
        }
        let bytes = u64::from(mib) * MIB;
        let file = create_memfd()?;
        file.set_len(bytes)
            .map_err(|source| MemoryError::Host { what: "Sizing", source })?;
        let host = map(&file, bytes, libc::MAP_SHARED)?;
        advise(host.cast(), bytes, libc::MADV_HUGEPAGE);
        let memory = describe(host, bytes, false)?;
        Ok(Self {
            host,
            bytes,
            file,
            memory,
            own_anonymous_pages: None,
            is_tracked: false,
        })
    }

    /// Makes the RAM what the file holds from where it stands. The kernel copies it from one file to the other: no page is
    /// mapped for it.
    pub fn fill(&self, from: &mut File) -> io::Result<()> {
        let copied = io::copy(&mut from.take(self.bytes), &mut &self.file)?;
        match copied == self.bytes {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// RAM that begins as the file does, privately: the file is never written, and nobody may change it from now on. The
    /// delta counts the VMM's own pages too.
    pub fn map(file: &File, mib: u32) -> Result<Self, MemoryError> {
        if !(MIN_MEMORY_MIB..=MAX_MEMORY_MIB).contains(&mib) {
            return Err(MemoryError::Size { mib });
        }
        let bytes = u64::from(mib) * MIB;
        let host_error = |what| move |source| MemoryError::Host { what, source };
        let file = file.try_clone().map_err(host_error("Sharing the file"))?;
        if file.metadata().map_err(host_error("Measuring the file"))?.len() < bytes {
            return Err(host_error("Mapping a shorter file")(
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        let host = map(&file, bytes, libc::MAP_PRIVATE)?;
        let memory = describe(host, bytes, false)?;
        Ok(Self {
            host,
            bytes,
            file,
            memory,
            own_anonymous_pages: Some(0),
            is_tracked: false,
        })
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    pub fn regions(&self) -> Vec<RamRegion> {
        layout(self.bytes)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From here on it is noted which pages are written: those of devices here, those of the guest by the VM that is made
    /// next.
    pub fn track(&mut self) -> Result<(), MemoryError> {
        self.memory = describe(self.host, self.bytes, true)?;
        self.is_tracked = true;
        Ok(())
    }

    pub fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// The pages of one region that devices have written since it was asked last, a bit each.
    pub fn take_device_writes(&self, region: usize) -> Vec<u64> {
        let region = self.memory.iter().nth(region);
        let written = region.and_then(|region| region.bitmap().as_ref().map(AtomicBitmap::get_and_reset));
        written.unwrap_or_default()
    }

    /// Puts back what `origin`, the memory of the process that this one was forked from, has in some pages. They are given as
    /// places in the mapping and lengths, in bytes. No VM may be running.
    pub fn put_back(&self, pieces: &[(u64, u64)], origin: &File) -> Result<(), MemoryError> {
        for (offset, bytes) in pieces {
            let (mut at, end) = (*offset, offset + bytes);
            assert!(end <= self.bytes, "Pages of the guest lie in its memory");
            while at < end {
                let place = self.host.wrapping_add(at as usize);
                // SAFETY: the range lies in the mapping, which nothing borrows as Rust references.
                let read = unsafe {
                    libc::pread(
                        origin.as_raw_fd(),
                        place.cast(),
                        (end - at) as usize,
                        place as libc::off_t,
                    )
                };
                match read {
                    read if read > 0 => at += read as u64,
                    // A process that has ended has no memory.
                    0 => return Err(MemoryError::OriginGone),
                    _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                    _ => return Err(last_error("Putting back")),
                }
            }
        }
        Ok(())
    }

    /// Gives this process its own copies of pages before anything writes them. A hint: where it fails, the first
    /// write to a page makes the copy.
    pub fn copy_early(&self, pages: &[u32]) {
        for (start, length) in hot::runs(pages) {
            let (start, bytes) = (u64::from(start) * PAGE_BYTES, u64::from(length) * PAGE_BYTES);
            if start + bytes <= self.bytes {
                let host = self.host.wrapping_add(start as usize);
                advise(host.cast(), bytes, libc::MADV_POPULATE_WRITE);
            }
        }
    }

    /// Host address of an offset into the mapping, for KVM memory slots.
    pub fn host_address(&self, offset: u64) -> u64 {
        self.host as u64 + offset
    }

    /// Turns what the guest wrote until now into the immutable base and maps it privately at the same address: later
    /// writes become private pages, the delta. Does nothing where that happened before.
    ///
    /// No VM may be using the memory: KVM would go on writing to the pages of the old mapping.
    pub fn freeze_base(&mut self, lent: &Lent) -> Result<(), MemoryError> {
        if self.own_anonymous_pages.is_some() {
            return Ok(());
        }
        // SAFETY: replaces exactly the mapping made in `new` (same address, same length, same file), which nothing
        // borrows as Rust references: all access goes through vm-memory's volatile pointers.
        let host = unsafe {
            libc::mmap(
                self.host.cast(),
                self.bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                0,
            )
        };
        if host == libc::MAP_FAILED {
            return Err(last_error("Private mapping"));
        }
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl with F_ADD_SEALS takes an int and touches no memory of ours.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(last_error("Sealing"));
        }
        self.own_anonymous_pages = Some(count(lent)?);
        Ok(())
    }

    /// Whether writes go to private pages, so that a copy of the process has a memory of its own.
    pub fn is_private(&self) -> bool {
        self.own_anonymous_pages.is_some()
    }

    /// The file whose sealed pages all descendants share.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Private pages of the guest: the size of the delta.
    ///
    /// The kernel keeps this count, so that asking costs the same for any guest (walking the page tables would take
    /// longer than the rest of a park). It counts all anonymous pages of the process less those that the VMM itself
    /// had when the base was made: off by what the VMM's heap and stack have grown since, some dozens of pages,
    /// and by pages that were copied early and then not written, or put back.
    pub fn private_pages(&self, lent: &Lent) -> Result<u64, MemoryError> {
        match self.own_anonymous_pages {
            None => Ok(0),
            Some(own) => Ok(count(lent)?.saturating_sub(own)),
        }
    }
}

/// A new mapping of a file that has at least so many bytes. `kind`: `MAP_SHARED` or `MAP_PRIVATE`.
fn map(file: &File, bytes: u64, kind: libc::c_int) -> Result<*mut u8, MemoryError> {
    // SAFETY: at an address of the kernel's choice it touches no existing object; `file` is open.
    let host = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            kind | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if host == libc::MAP_FAILED {
        return Err(last_error("Mapping"));
    }
    Ok(host.cast())
}

fn create_memfd() -> Result<File, MemoryError> {
    // SAFETY: the name is a NUL-terminated literal; the call touches no other memory.
    let fd = unsafe { libc::memfd_create(c"coppice-guest".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(last_error("Creation"));
    }
    // SAFETY: `fd` was just returned to us and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn describe(host: *mut u8, bytes: u64, is_tracked: bool) -> Result<Memory, MemoryError> {
    let mut regions = Vec::new();
    for region in layout(bytes) {
        let bitmap = is_tracked.then(|| AtomicBitmap::new(region.bytes as usize, PAGE));
        // SAFETY: offset and length lie inside the mapping of `bytes` bytes at `host`, which lives as long as the
        // process: `GuestRam` never unmaps it, and replaces it only in place.
        let mapping = unsafe {
            MmapRegionBuilder::new_with_bitmap(region.bytes as usize, bitmap)
                .with_raw_mmap_pointer(host.add(region.offset as usize))
                .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
                .with_mmap_flags(libc::MAP_SHARED)
                .build()?
        };
        regions.extend(GuestRegionMmap::new(mapping, GuestAddress(region.guest)));
    }
    Ok(Memory::from_regions(regions)?)
}

/// Gives the kernel a hint; a kernel that does not know it works the same, slower.
fn advise(host: *mut libc::c_void, bytes: u64, advice: libc::c_int) {
    // SAFETY: the range lies in one mapping of ours, and the advice given here never changes its contents.
    unsafe { libc::madvise(host, bytes as usize, advice) };
}

fn count(lent: &Lent) -> Result<u64, MemoryError> {
    lent.anonymous_pages().map_err(|source| MemoryError::Host {
        what: "Counting the pages",
        source,
    })
}

fn last_error(what: &'static str) -> MemoryError {
    MemoryError::Host {
        what,
        source: io::Error::last_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    #[test]
    fn layout_below_the_hole_is_one_region() {
        assert_eq!(
            layout(256 * MIB),
            [RamRegion {
                guest: 0,
                offset: 0,
                bytes: 256 * MIB
            }]
        );
        assert_eq!(layout(MMIO_HOLE_START).len(), 1);
    }

    #[test]
    fn layout_above_the_hole_continues_at_4_gib_without_losing_bytes() {
        let bytes = 5 << 30;
        let regions = layout(bytes);
        assert_eq!(
            regions[0],
            RamRegion {
                guest: 0,
                offset: 0,
                bytes: MMIO_HOLE_START
            }
        );
        assert_eq!(
            regions[1],
            RamRegion {
                guest: MMIO_HOLE_END,
                offset: MMIO_HOLE_START,
                bytes: bytes - MMIO_HOLE_START
            }
        );
        assert_eq!(regions.iter().map(|region| region.bytes).sum::<u64>(), bytes);
    }

    #[test]
    fn ram_of_a_size_outside_the_limits_is_refused() {
        for mib in [0, MIN_MEMORY_MIB - 1, MAX_MEMORY_MIB + 1] {
            assert!(matches!(GuestRam::new(mib), Err(MemoryError::Size { mib: given }) if given == mib));
        }
    }

    #[test]
    fn ram_that_was_filled_or_mapped_holds_the_file_and_never_changes_it() {
        let source = GuestRam::new(MIN_MEMORY_MIB).unwrap();
        let last = GuestAddress(source.bytes() - 8);
        source.memory().write_obj(7u64, last).unwrap();
        let filled = GuestRam::new(MIN_MEMORY_MIB).unwrap();
        filled.fill(&mut source.file.try_clone().unwrap()).unwrap();
        let mapped = GuestRam::map(&source.file, MIN_MEMORY_MIB).unwrap();
        for ram in [&filled, &mapped] {
            assert_eq!(ram.memory().read_obj::<u64>(last).unwrap(), 7);
            ram.memory().write_obj(8u64, last).unwrap();
        }
        assert_eq!(source.memory().read_obj::<u64>(last).unwrap(), 7);
        assert!(
            filled.fill(&mut source.file.try_clone().unwrap()).is_err(),
            "the file is at its end"
        );
        assert!(
            GuestRam::map(&source.file, MIN_MEMORY_MIB + 1).is_err(),
            "the file is shorter"
        );
    }

    #[test]
    fn frozen_base_keeps_its_bytes_and_later_writes_stay_private() {
        let mut ram = GuestRam::new(MIN_MEMORY_MIB).unwrap();
        ram.memory().write_obj(1u32, GuestAddress(0x1000)).unwrap();
        ram.freeze_base(&Lent::own()).unwrap();
        ram.freeze_base(&Lent::own()).unwrap();
        assert_eq!(ram.memory().read_obj::<u32>(GuestAddress(0x1000)).unwrap(), 1);

        ram.memory().write_obj(2u32, GuestAddress(0x1000)).unwrap();
        let mut base = [0u8; 4];
        std::os::unix::fs::FileExt::read_exact_at(&ram.file, &mut base, 0x1000).unwrap();
        assert_eq!(u32::from_le_bytes(base), 1);
        assert!(
            std::os::unix::fs::FileExt::write_at(&ram.file, &base, 0).is_err(),
            "the base is sealed"
        );
    }

    #[test]
    fn private_pages_count_what_was_written_since_the_base() {
        let mut ram = GuestRam::new(MIN_MEMORY_MIB).unwrap();
        assert_eq!(ram.private_pages(&Lent::own()).unwrap(), 0);
        ram.freeze_base(&Lent::own()).unwrap();
        for page in 0..1000 {
            ram.memory().write_obj(7u8, GuestAddress(page * PAGE_BYTES)).unwrap();
        }
        // Tests that run beside this one add theirs.
        assert!(ram.private_pages(&Lent::own()).unwrap() >= 900);
    }

    #[test]
    fn memory_in_the_hole_is_not_accessible() {
        let ram = GuestRam::new(4096).unwrap();
        assert!(ram.memory().read_obj::<u8>(GuestAddress(MMIO_HOLE_START)).is_err());
        assert!(ram.memory().read_obj::<u8>(GuestAddress(MMIO_HOLE_END)).is_ok());
    }
}
