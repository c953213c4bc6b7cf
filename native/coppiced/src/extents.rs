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

/// Name of a file that lies in memory, where the directory's file system has no unnamed files.
const MEMORY_FILE: &std::ffi::CStr = c"coppice-extent";
const MEMORY_FILE_PREFIX: &str = "/memfd:coppice-extent";

/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

#[derive(Debug, thiserror::Error)]
#[error("A file for a guest's disk can't be made in {directory}: {source}")]
pub struct ExtentError {
    directory: PathBuf,
    source: io::Error,
}

impl Typed for ExtentError {
    fn spec(&self) -> Spec {
        Spec::new("HOST_FULL", FaultDomain::Host)
            .retryable()
            .remedy("Free space in that directory, or start the daemon with another --extents-dir.")
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
}

pub struct Extents {
    directory: PathBuf,
}

impl Extents {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub fn create(&self) -> Result<NewExtent, ExtentError> {
        self.unnamed().and_then(reopen).map_err(|source| self.failed(source))
    }

    /// A file that holds `contents`, open for reading.
    pub fn create_with(&self, contents: &[u8]) -> Result<OwnedFd, ExtentError> {
        let made = self.unnamed().and_then(|mut file| {
            file.write_all(contents)?;
            reopen(file)
        });
        Ok(made.map_err(|source| self.failed(source))?.readable)
    }

    pub fn space(&self) -> Result<DiskSpace, ExtentError> {
        self.make_directory().map_err(|source| self.failed(source))?;
        let space = statvfs(&self.directory).map_err(|error| self.failed(error.into()))?;
        Ok(DiskSpace {
            total_bytes: space.blocks() * space.fragment_size(),
            available_bytes: space.blocks_available() * space.fragment_size(),
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
        ExtentError {
            directory: self.directory.clone(),
            source,
        }
    }
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
        let extent = Extents::new(directory.clone()).create().unwrap();
        let (writable, readable) = (File::from(extent.writable), File::from(extent.readable));
        writable.write_all_at(b"block", 100).unwrap();
        let mut bytes = [0; 5];
        readable.read_exact_at(&mut bytes, 100).unwrap();
        assert_eq!(&bytes, b"block");
        assert!(readable.write_at(b"x", 0).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "it has no name");
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn extent_lies_in_memory_where_there_are_no_unnamed_files() {
        let extents = Extents::new(PathBuf::from("/proc"));
        let contents = File::from(extents.create_with(b"contents").unwrap());
        let mut bytes = [0; 8];
        contents.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"contents");
    }

    #[test]
    fn extents_that_a_process_has_open_are_counted_once_each() {
        let directory = directory("count");
        let extents = Extents::new(directory.clone());
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
        let error = Extents::new(PathBuf::from("/proc/version/x")).create().err().unwrap();
        assert!(error.to_string().contains("/proc/version/x"), "{error}");
        assert_eq!(error.spec().code, "HOST_FULL");
    }
}
