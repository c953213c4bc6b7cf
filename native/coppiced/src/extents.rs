//! Files that VMMs write the contents of their guests' disks to. They have no names: each is gone with the last process
//! that has it open, whatever ends that process.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statvfs::statvfs;
use serde::Serialize;

use crate::errors::{FaultDomain, Spec, Typed};
use crate::memory::machine_memory;

/// Name of a file that lies in memory, where the directory's file system has no unnamed files.
const MEMORY_FILE: &std::ffi::CStr = c"coppice-extent";
const MEMORY_FILE_PREFIX: &str = "/memfd:coppice-extent";

/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

const MIB: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ExtentError {
    #[error("A file for a guest's disk can't be made in {directory}: {source}")]
    Make { directory: PathBuf, source: io::Error },
    #[error(
        "{place} has {} MiB left for guests' disks, {} MiB of them in reserve",
        .available / MIB, .reserve / MIB
    )]
    Full {
        place: String,
        available: u64,
        reserve: u64,
    },
}

impl Typed for ExtentError {
    fn spec(&self) -> Spec {
        Spec::new("HOST_FULL", FaultDomain::Host).retryable().remedy(
            "Free space there, start the daemon with another --extents-dir, or give it a smaller --disk-reserve-mib.",
        )
    }
}

/// A new file, twice: what was written through the first is read through the second, which can't write.
pub struct NewExtent {
    pub writable: OwnedFd,
    pub readable: OwnedFd,
}

/// Room for extents.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// The files lie in memory: the directory's file system has none without a name.
    pub in_memory: bool,
}

pub struct Extents {
    directory: PathBuf,
    /// `None`: chosen from the file system.
    reserve_bytes: Option<u64>,
}

impl Extents {
    pub fn new(directory: PathBuf, reserve_bytes: Option<u64>) -> Self {
        Self {
            directory,
            reserve_bytes,
        }
    }

    /// What disks must leave of the file system that their files lie in.
    pub fn reserve_bytes(&self) -> Result<u64, ExtentError> {
        Ok(self.reserve_of(self.space()?))
    }

    fn reserve_of(&self, space: DiskSpace) -> u64 {
        self.reserve_bytes.unwrap_or_else(|| default_reserve(space.total_bytes))
    }

    pub fn create(&self) -> Result<NewExtent, ExtentError> {
        self.admit()?;
        self.unnamed().and_then(reopen).map_err(|source| self.failed(source))
    }

    /// A file that holds `contents`, open for reading.
    pub fn create_with(&self, contents: &[u8]) -> Result<OwnedFd, ExtentError> {
        self.admit()?;
        let made = self.unnamed().and_then(|mut file| {
            file.write_all(contents)?;
            reopen(file)
        });
        Ok(made.map_err(|source| self.failed(source))?.readable)
    }

    pub fn space(&self) -> Result<DiskSpace, ExtentError> {
        let probe = self.unnamed().map_err(|source| self.failed(source))?;
        if self.is_in_memory(&probe) {
            let memory = machine_memory().map_err(|error| self.failed(io::Error::other(error)))?;
            return Ok(DiskSpace {
                total_bytes: memory.total_bytes,
                available_bytes: memory.available_bytes,
                in_memory: true,
            });
        }
        let space = statvfs(&self.directory).map_err(|error| self.failed(error.into()))?;
        Ok(DiskSpace {
            total_bytes: space.blocks() * space.fragment_size(),
            available_bytes: space.blocks_available() * space.fragment_size(),
            in_memory: false,
        })
    }

    fn admit(&self) -> Result<(), ExtentError> {
        let space = self.space()?;
        let reserve = self.reserve_of(space);
        if space.available_bytes >= reserve {
            return Ok(());
        }
        Err(ExtentError::Full {
            place: match space.in_memory {
                true => "Memory".to_owned(),
                false => self.directory.display().to_string(),
            },
            available: space.available_bytes,
            reserve,
        })
    }

    /// Bytes that the extents which a process has open take: its own, and those that it shares with its relatives.
    pub fn open_bytes(&self, pid: i32) -> io::Result<u64> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            // Closed meanwhile, where it is not there.
            let (Ok(target), Ok(file)) = (fs::read_link(entry.path()), fs::metadata(entry.path())) else {
                continue;
            };
            if self.owns(&target) {
                files.insert((file.dev(), file.ino()), file.blocks() * STAT_BLOCK_BYTES);
            }
        }
        Ok(files.values().sum())
    }

    /// Whether a process's descriptor, by what `/proc` says of it, is one of these files.
    fn owns(&self, target: &Path) -> bool {
        let is_unnamed = target.to_str().is_some_and(|target| target.ends_with(" (deleted)"));
        is_unnamed && (target.starts_with(&self.directory) || target.to_string_lossy().starts_with(MEMORY_FILE_PREFIX))
    }

    fn is_in_memory(&self, file: &File) -> bool {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        path.is_ok_and(|path| path.to_string_lossy().starts_with(MEMORY_FILE_PREFIX))
    }

    fn make_directory(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    fn unnamed(&self) -> io::Result<File> {
        self.make_directory()?;
        // With O_EXCL nobody can give it a name later.
        let flags = libc::O_TMPFILE | libc::O_EXCL;
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(&self.directory);
        match made {
            Err(error) if has_no_unnamed_files(&error) => Ok(memfd_create(MEMORY_FILE, MFdFlags::MFD_CLOEXEC)?.into()),
            made => made,
        }
    }

    fn failed(&self, source: io::Error) -> ExtentError {
        ExtentError::Make {
            directory: self.directory.clone(),
            source,
        }
    }
}

/// A sixteenth, 64 MiB to 4 GiB.
fn default_reserve(total_bytes: u64) -> u64 {
    (total_bytes / 16).clamp(64 * MIB, 4096 * MIB)
}

fn reopen(writable: File) -> io::Result<NewExtent> {
    let readable = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))?;
    Ok(NewExtent {
        writable: writable.into(),
        readable: readable.into(),
    })
}

fn has_no_unnamed_files(error: &io::Error) -> bool {
    let unsupported = [Errno::EOPNOTSUPP, Errno::EISDIR, Errno::ENOENT, Errno::EINVAL];
    error
        .raw_os_error()
        .is_some_and(|number| unsupported.contains(&Errno::from_raw(number)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn directory(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("coppiced-extents-{}-{test}", std::process::id()))
    }

    #[test]
    fn extent_is_written_through_one_descriptor_and_only_read_through_the_other() {
        let directory = directory("pair");
        let extent = extents(&directory).create().unwrap();
        let (writable, readable) = (File::from(extent.writable), File::from(extent.readable));
        writable.write_all_at(b"block", 100).unwrap();
        let mut bytes = [0; 5];
        readable.read_exact_at(&mut bytes, 100).unwrap();
        assert_eq!(&bytes, b"block");
        assert!(readable.write_at(b"x", 0).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "it has no name");
        fs::remove_dir(directory).unwrap();
    }

    fn extents(directory: &Path) -> Extents {
        Extents::new(directory.to_owned(), Some(0))
    }

    #[test]
    fn extent_that_would_take_of_the_reserve_is_refused_wherever_it_lies() {
        let directory = directory("reserve");
        for (directory, place) in [
            (directory.as_path(), directory.to_str().unwrap()),
            (Path::new("/proc"), "Memory"),
        ] {
            let full = Extents::new(directory.to_owned(), Some(u64::MAX));
            let error = full.create().err().unwrap();
            assert!(error.to_string().starts_with(place), "{error}");
            assert_eq!(error.spec().code, "HOST_FULL");
            assert!(full.create_with(b"contents").is_err());
            assert!(extents(directory).create().is_ok());
        }
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn reserve_is_a_share_of_the_file_system_within_limits() {
        assert_eq!(
            [1, 16 << 30, 1 << 50].map(default_reserve),
            [64 * MIB, 1 << 30, 4 << 30]
        );
        assert_eq!(Extents::new("/proc".into(), Some(7)).reserve_bytes().unwrap(), 7);
    }

    #[test]
    fn space_says_whether_extents_lie_in_memory() {
        let directory = directory("space");
        assert!(!extents(&directory).space().unwrap().in_memory);
        let memory = extents(Path::new("/proc")).space().unwrap();
        assert!(memory.in_memory && memory.total_bytes == machine_memory().unwrap().total_bytes);
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn extent_lies_in_memory_where_there_are_no_unnamed_files() {
        let extents = extents(Path::new("/proc"));
        let contents = File::from(extents.create_with(b"contents").unwrap());
        let mut bytes = [0; 8];
        contents.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"contents");
    }

    #[test]
    fn extents_that_a_process_has_open_are_counted_once_each() {
        let directory = directory("count");
        let extents = extents(&directory);
        let pid = std::process::id() as i32;
        let extent = extents.create().unwrap();
        let writable = File::from(extent.writable);
        writable.write_all_at(&[1; 64 << 10], 1 << 30).unwrap();
        let bytes = extents.open_bytes(pid).unwrap();
        assert!((64 << 10..256 << 10).contains(&bytes), "{bytes}");
        drop((writable, extent.readable));
        assert_eq!(extents.open_bytes(pid).unwrap(), 0);
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn directory_that_can_not_be_made_is_an_error_that_names_it() {
        let error = extents(Path::new("/proc/version/x")).create().err().unwrap();
        assert!(error.to_string().contains("/proc/version/x"), "{error}");
        assert_eq!(error.spec().code, "HOST_FULL");
    }
}
