//! File requests that may take long: they are done in slices, so that other requests are served between.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use coppice_wire::Value;
use nix::errno::Errno;
use serde::Serialize;

use crate::args::{Args, ArgsError};
use crate::context::{CHUNK_BYTES, Context};
use crate::files::{FileError, Result, failed, remove_one, split, to_path};
use crate::outbox::{Empty, RequestKey};
use crate::sys;

/// File jobs that may run at once.
const MAX_JOBS: usize = 256;

/// Chunks, and entries removed, in one slice.
const CHUNKS_A_SLICE: usize = 4;
const ENTRIES_A_SLICE: usize = 512;

/// How often a directory is listed again that fills while it is removed.
const MAX_LISTINGS: u32 = 10;

/// Largest offset and limit: what the kernel takes.
const MAX_OFFSET: u64 = i64::MAX as u64;

#[derive(Serialize)]
struct ReadResult {
    /// Bytes sent.
    size: u64,
    /// Device and inode, so that who reads in several requests sees that another file took the place.
    file: String,
}

/// A file that is sent piece by piece.
struct Reading {
    path: PathBuf,
    fd: OwnedFd,
    identity: (u64, u64),
    offset: u64,
    left: u64,
    sent: u64,
}

/// A directory on the way down to the one that is emptied now.
struct Level {
    name: CString,
    identity: (u64, u64),
    entries: Vec<CString>,
    listings: u32,
}

/// A tree that is removed. Only one directory is open at a time, however deep the tree; the way back up is checked, so
/// that a program that moves directories about meanwhile cannot lead the removal elsewhere. Links are never followed.
struct Removal {
    path: PathBuf,
    parent: OwnedFd,
    current: OwnedFd,
    levels: Vec<Level>,
}

enum Work {
    Read(Reading),
    Remove(Removal),
}

struct Job {
    /// `None` where the life that asked for it is over.
    key: Option<RequestKey>,
    work: Work,
}

enum Slice {
    More,
    Done,
}

#[derive(Default)]
pub struct FileJobs {
    jobs: Vec<Job>,
}

impl FileJobs {
    pub fn read(&mut self, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let c_path = args.path("path")?;
        let offset = args.optional_integer("offset", 0..=MAX_OFFSET)?.unwrap_or(0);
        let left = args.optional_integer("limit", 0..=MAX_OFFSET)?.unwrap_or(u64::MAX);
        args.finish()?;
        self.check_room()?;
        let path = to_path(c_path.clone());
        // Without O_NONBLOCK a FIFO would be waited for.
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        let fd = sys::open(&c_path, flags, 0).map_err(|errno| failed(&path, "read", errno))?;
        let identity = identity(&fd).map_err(|errno| failed(&path, "read", errno))?;
        self.push(
            key,
            Work::Read(Reading {
                path,
                fd,
                identity,
                offset,
                left,
                sent: 0,
            }),
        );
        Ok(())
    }

    pub fn remove(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let path = to_path(args.path("path")?);
        let recursive = args.flag("recursive")?;
        args.finish()?;
        if !recursive {
            remove_one(&path)?;
            context.outbox.ok(key, &Empty {});
            return Ok(());
        }
        self.check_room()?;
        match Removal::start(path)? {
            Some(removal) => self.push(key, Work::Remove(removal)),
            None => context.outbox.ok(key, &Empty {}),
        }
        Ok(())
    }

    fn check_room(&self) -> Result<()> {
        if self.jobs.len() < MAX_JOBS {
            Ok(())
        } else {
            Err(FileError::TooMany)
        }
    }

    fn push(&mut self, key: RequestKey, work: Work) {
        self.jobs.push(Job { key: Some(key), work });
    }

    /// Whether `run` would do something now.
    pub fn has_work(&self, context: &Context) -> bool {
        self.jobs
            .iter()
            .any(|job| matches!(job.work, Work::Remove(_)) || !context.outbox.is_full())
    }

    /// Does one slice of each job.
    pub fn run(&mut self, context: &mut Context) {
        self.jobs.retain_mut(|job| {
            let outcome = match &mut job.work {
                Work::Read(reading) => job.key.map_or(Ok(Slice::Done), |key| reading.run(context, key)),
                Work::Remove(removal) => removal.run(),
            };
            match (outcome, job.key) {
                (Ok(Slice::More), _) => return true,
                (Ok(Slice::Done), Some(key)) => match &job.work {
                    Work::Read(reading) => context.outbox.ok(key, &reading.result()),
                    Work::Remove(_) => context.outbox.ok(key, &Empty {}),
                },
                (Err(error), Some(key)) => context.outbox.failure(key, error),
                (_, None) => {}
            }
            false
        });
    }

    /// Ends a job where it stands; false where it does not run.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let count = self.jobs.len();
        self.jobs.retain(|job| job.key != Some(target));
        let found = self.jobs.len() < count;
        if found {
            context.outbox.failure(target, FileError::Cancelled);
        }
        found
    }

    /// A new life has begun: removals of an earlier one go on, reports of it do not.
    pub fn disown(&mut self, generation: u64) {
        for job in &mut self.jobs {
            job.key = job.key.filter(|key| key.generation == generation);
        }
    }
}

impl Reading {
    fn result(&self) -> ReadResult {
        let (device, inode) = self.identity;
        ReadResult {
            size: self.sent,
            file: format!("{device}:{inode}"),
        }
    }

    fn run(&mut self, context: &mut Context, key: RequestKey) -> Result<Slice> {
        for _ in 0..CHUNKS_A_SLICE {
            if self.left == 0 {
                return Ok(Slice::Done);
            }
            if context.outbox.is_full() {
                break;
            }
            let most = self.left.min(CHUNK_BYTES as u64) as usize;
            match self.read_piece(&mut context.scratch[..most]) {
                Ok(0) => return Ok(Slice::Done),
                Ok(count) => {
                    context.outbox.chunk(key, "data", &context.scratch[..count]);
                    self.offset += count as u64;
                    self.sent += count as u64;
                    self.left -= count as u64;
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(&self.path, "read", errno)),
            }
        }
        Ok(Slice::More)
    }

    fn read_piece(&self, piece: &mut [u8]) -> sys::Result<usize> {
        match sys::pread(self.fd.as_raw_fd(), piece, self.offset) {
            // Devices and the like, which have no positions.
            Err(Errno::ESPIPE) => sys::read(self.fd.as_raw_fd(), piece),
            other => other,
        }
    }
}

impl Removal {
    /// `None` where it was no directory and is removed already.
    fn start(path: PathBuf) -> Result<Option<Self>> {
        let Some((directory, name)) = split(&path) else {
            let reason = format!("'{}' names no entry of a directory", path.display());
            return Err(ArgsError::Refused {
                field: "path".into(),
                reason,
            }
            .into());
        };
        let at = |errno| failed(&path, "removed", errno);
        let parent = open_directory(libc::AT_FDCWD, &c_string(directory.as_os_str()), 0).map_err(at)?;
        let name = c_string(name);
        match unlink_at(parent.as_raw_fd(), &name, 0) {
            Ok(()) => return Ok(None),
            Err(Errno::EISDIR) => {}
            Err(errno) => return Err(at(errno)),
        }
        let (current, level) = enter(parent.as_raw_fd(), name).map_err(at)?;
        Ok(Some(Self {
            parent,
            current,
            levels: vec![level],
            path,
        }))
    }

    fn run(&mut self) -> Result<Slice> {
        for _ in 0..ENTRIES_A_SLICE {
            match self.step() {
                Ok(Slice::More) => {}
                Ok(Slice::Done) => return Ok(Slice::Done),
                Err(errno) => return Err(failed(&self.path, "removed", errno)),
            }
        }
        Ok(Slice::More)
    }

    /// Removes one entry, or goes down into it, or removes the emptied directory and goes up.
    fn step(&mut self) -> sys::Result<Slice> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(Slice::Done);
        };
        let Some(name) = level.entries.pop() else {
            return self.leave();
        };
        match unlink_at(self.current.as_raw_fd(), &name, 0) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => {
                let (current, level) = enter(self.current.as_raw_fd(), name)?;
                self.current = current;
                self.levels.push(level);
            }
            Err(errno) => return Err(errno),
        }
        Ok(Slice::More)
    }

    fn leave(&mut self) -> sys::Result<Slice> {
        let above = self
            .levels
            .len()
            .checked_sub(2)
            .and_then(|index| self.levels.get(index));
        let expected = above.map(|level| level.identity);
        let up = match expected {
            None => None,
            Some(expected) => {
                let up = open_directory(self.current.as_raw_fd(), c"..", 0)?;
                if identity(&up)? != expected {
                    return Err(Errno::ESTALE);
                }
                Some(up)
            }
        };
        let parent = up.as_ref().unwrap_or(&self.parent);
        let Some(level) = self.levels.last_mut() else {
            return Ok(Slice::Done);
        };
        match unlink_at(parent.as_raw_fd(), &level.name, libc::AT_REMOVEDIR) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY) if level.listings < MAX_LISTINGS => {
                level.listings += 1;
                level.entries = entries(&self.current)?;
                return Ok(Slice::More);
            }
            Err(errno) => return Err(errno),
        }
        self.levels.pop();
        match up {
            Some(up) => {
                self.current = up;
                Ok(Slice::More)
            }
            None => Ok(Slice::Done),
        }
    }
}

/// Opens a directory that was found as an entry, and lists it.
fn enter(parent: RawFd, name: CString) -> sys::Result<(OwnedFd, Level)> {
    let directory = open_directory(parent, &name, libc::O_NOFOLLOW)?;
    let level = Level {
        name,
        identity: identity(&directory)?,
        entries: entries(&directory)?,
        listings: 1,
    };
    Ok((directory, level))
}

fn c_string(text: &OsStr) -> CString {
    // Paths come from arguments without NUL, names from the kernel.
    CString::new(text.as_bytes()).unwrap_or_default()
}

fn open_directory(at: RawFd, path: &CStr, flags: libc::c_int) -> sys::Result<OwnedFd> {
    sys::open_at(at, path, libc::O_RDONLY | libc::O_DIRECTORY | flags)
}

fn unlink_at(at: RawFd, name: &CStr, flags: libc::c_int) -> sys::Result<()> {
    // SAFETY: `name` ends in NUL and outlives the call.
    Errno::result(unsafe { libc::unlinkat(at, name.as_ptr(), flags) }).map(drop)
}

/// Device and inode.
fn identity(directory: &OwnedFd) -> sys::Result<(u64, u64)> {
    // SAFETY: an all-zero stat is valid storage, and the kernel fills it.
    let (result, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(directory.as_raw_fd(), &mut stat), stat)
    };
    Errno::result(result)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn entries(directory: &OwnedFd) -> sys::Result<Vec<CString>> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    // The open directory itself, whatever its path has become.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let listed = std::fs::read_dir(path).map_err(errno)?;
    listed
        .map(|entry| Ok(c_string(&entry.map_err(errno)?.file_name())))
        .collect()
}
