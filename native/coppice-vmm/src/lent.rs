//! What a VMM reads about itself. Confined, it opens nothing: where it will need such a file, the daemon opens it and
//! lends it along with the command.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use coppice_wire::vmm::LentFile;

/// Bytes of `statm`: seven numbers of at most twenty digits.
const STATM_BYTES: usize = 160;

/// The process's own files in `/proc` that are lent to it, until it is frozen.
#[derive(Default)]
pub struct Lent {
    statm: Option<File>,
    pagemap: Option<File>,
    origin: Origin,
}

/// What is lent of the frozen process that this one was forked from, for one command.
#[derive(Default)]
pub struct Origin {
    /// Read at the addresses of its address space.
    pub memory: Option<File>,
    pub pagemap: Option<File>,
}

impl Lent {
    pub fn take(&mut self, which: LentFile, file: File) {
        match which {
            LentFile::Statm => self.statm = Some(file),
            LentFile::Pagemap => self.pagemap = Some(file),
            LentFile::OriginMemory => self.origin.memory = Some(file),
            LentFile::OriginPagemap => self.origin.pagemap = Some(file),
        }
    }

    /// What was lent for the command that takes it.
    pub fn take_origin(&mut self) -> Origin {
        std::mem::take(&mut self.origin)
    }

    pub fn can_count(&self) -> bool {
        self.statm.is_some()
    }

    /// An entry of eight bytes for each page of the address space.
    pub fn pagemap(&self) -> Option<&File> {
        self.pagemap.as_ref()
    }

    /// Anonymous pages of this process: resident less file-backed and shared ones.
    pub fn anonymous_pages(&self) -> io::Result<u64> {
        let statm = self.statm.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = [0; STATM_BYTES];
        // From the beginning: then the kernel counts anew.
        let length = statm.read_at(&mut bytes, 0)?;
        let text = str::from_utf8(&bytes[..length]).map_err(io::Error::other)?;
        let mut fields = text
            .split_ascii_whitespace()
            .map(|field| field.parse::<u64>().unwrap_or(0));
        let (resident, shared) = (fields.nth(1).unwrap_or(0), fields.next().unwrap_or(0));
        Ok(resident.saturating_sub(shared))
    }
}

#[cfg(test)]
impl Lent {
    /// Opened by the process itself.
    pub fn own() -> Self {
        Self {
            statm: Some(File::open("/proc/self/statm").unwrap()),
            pagemap: Some(File::open("/proc/self/pagemap").unwrap()),
            origin: Origin {
                memory: Some(File::open("/proc/self/mem").unwrap()),
                pagemap: Some(File::open("/proc/self/pagemap").unwrap()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_pages_follows_what_is_written_through_one_descriptor() {
        let lent = Lent::own();
        let before = lent.anonymous_pages().unwrap();
        let written = std::hint::black_box(vec![1u8; 16 << 20]);
        // Tests that run beside this one free some of theirs.
        assert!(lent.anonymous_pages().unwrap() > before + 2048);
        assert_eq!(written[written.len() - 1], 1);
    }

    #[test]
    fn count_of_pages_without_the_file_is_an_error() {
        assert!(Lent::default().anonymous_pages().is_err());
    }
}
