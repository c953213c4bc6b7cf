//! File requests that are done at once. Reading and recursive removal, which may take long, are jobs (`file_jobs`).

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use coppice_wire::Value;
use nix::errno::Errno;
use serde::Serialize;

use crate::args::{Args, ArgsError};
use crate::context::Context;
use crate::failure::{Coded, describe};
use crate::outbox::{Empty, RequestKey};

/// Permission bits, with set-uid, set-gid and sticky.
const MODE_BITS: u64 = 0o7777;

const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// Names that are tried for a temporary file before something else must be wrong.
const TEMPORARY_ATTEMPTS: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error("'{path}' does not exist")]
    NotFound { path: String },
    #[error("'{path}' is {is}, and must be {wanted}")]
    WrongKind {
        path: String,
        is: &'static str,
        wanted: &'static str,
    },
    #[error("Directory '{path}' is not empty; remove it with recursive")]
    NotEmpty { path: String },
    #[error("No space is left for '{path}'")]
    NoSpace { path: String },
    #[error("'{from}' and '{to}' are on different file systems; copy it instead")]
    OtherFileSystem { from: String, to: String },
    #[error(
        "No upload has the number {0}: it has ended, was dropped for newer ones, or belongs to an earlier life of the guest"
    )]
    NoUpload(u64),
    #[error("Too many file operations run already; wait for one to end")]
    TooMany,
    #[error("The request was cancelled")]
    Cancelled,
    #[error("'{path}' can't be {action}: {}", describe(*.errno))]
    Failed {
        path: String,
        action: &'static str,
        errno: Errno,
    },
}

impl Coded for FileError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::NotFound { .. } => "FILE_NOT_FOUND",
            Self::WrongKind { .. } => "FILE_WRONG_KIND",
            Self::NotEmpty { .. } => "FILE_NOT_EMPTY",
            Self::NoSpace { .. } => "FILE_NO_SPACE",
            Self::OtherFileSystem { .. } => "FILE_OTHER_FILE_SYSTEM",
            Self::NoUpload(_) => "FILE_UPLOAD_NOT_FOUND",
            Self::TooMany => "FILE_LIMIT",
            Self::Cancelled => "CANCELLED",
            Self::Failed { .. } => "FILE_FAILED",
        }
    }
}

pub type Result<T> = std::result::Result<T, FileError>;

/// Turns the error of a system call on `path` into a failure that says what was to be done.
pub fn failed(path: &Path, action: &'static str, errno: Errno) -> FileError {
    let path = path.to_string_lossy().into_owned();
    match errno {
        Errno::ENOENT => FileError::NotFound { path },
        Errno::EISDIR => FileError::WrongKind {
            path,
            is: "a directory",
            wanted: "a file",
        },
        Errno::ENOTDIR => FileError::WrongKind {
            path,
            is: "below a file",
            wanted: "below directories only",
        },
        Errno::ENOTEMPTY => FileError::NotEmpty { path },
        Errno::ENOSPC | Errno::EDQUOT => FileError::NoSpace { path },
        errno => FileError::Failed { path, action, errno },
    }
}

trait During<T> {
    fn during(self, path: &Path, action: &'static str) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, path: &Path, action: &'static str) -> Result<T> {
        self.map_err(|error| failed(path, action, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))
    }
}

pub fn to_path(path: CString) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes()))
}

/// What `docs/protocol.md` calls the kind of a file.
pub fn kind_of(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "symlink",
        kind if kind.is_fifo() => "fifo",
        kind if kind.is_socket() => "socket",
        kind if kind.is_block_device() => "block",
        _ => "character",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatResult {
    kind: &'static str,
    size: u64,
    mode: u32,
    mtime_ns: i64,
}

#[derive(Serialize)]
struct ListEntry {
    name: String,
    kind: &'static str,
}

#[derive(Serialize)]
struct LinkResult {
    target: String,
}

#[derive(Serialize)]
struct ListResult {
    entries: Vec<ListEntry>,
}

/// `file.write`: as a whole or not at all, unless it appends.
pub fn write(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let path = to_path(args.path("path")?);
    let data = args.bytes("data")?;
    let mode = take_mode(&mut args)?;
    let append = args.flag("append")?;
    args.finish()?;
    if append {
        append_to(&path, &data, mode)?;
    } else {
        let mut replacement = Replacement::begin(path)?;
        replacement.write(&data)?;
        replacement.commit(mode)?;
    }
    context.outbox.ok(key, &Empty {});
    Ok(())
}

pub fn take_mode(args: &mut Args) -> Result<Option<u32>> {
    Ok(args.optional_integer("mode", 0..=MODE_BITS)?.map(|mode| mode as u32))
}

/// A temporary file on its way to the place of another; removed where it does not get there.
pub struct Replacement {
    /// As the request names it.
    path: PathBuf,
    /// With links followed: the file that a link names is replaced.
    target: PathBuf,
    present: Option<Metadata>,
    temporary: PathBuf,
    file: File,
}

impl Replacement {
    pub fn begin(path: PathBuf) -> Result<Self> {
        let target = match fs::canonicalize(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => path.clone(),
            Err(error) => return Err(error).during(&path, "written"),
        };
        let present = match fs::metadata(&target) {
            Ok(present) if present.is_file() => Some(present),
            Ok(other) => {
                let is = kind_of(other.file_type());
                return Err(FileError::WrongKind {
                    path: path.to_string_lossy().into_owned(),
                    is,
                    wanted: "a file",
                });
            }
            Err(_) => None,
        };
        let (temporary, file) = temporary_beside(&target)?;
        Ok(Self {
            path,
            target,
            present,
            temporary,
            file,
        })
    }

    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).during(&self.path, "written")
    }

    pub fn commit(self, mode: Option<u32>) -> Result<()> {
        dress(&self.file, &self.temporary, self.present.as_ref(), mode)
            .and_then(|()| fs::rename(&self.temporary, &self.target))
            .during(&self.path, "written")
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Gone already where it was renamed.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Distinguishes the temporary files of one agent, so that a name is free at the first attempt.
static TEMPORARIES: AtomicU64 = AtomicU64::new(0);

fn temporary_beside(target: &Path) -> Result<(PathBuf, File)> {
    let directory = target.parent().unwrap_or(Path::new("/"));
    let mut outcome = Err(ErrorKind::AlreadyExists.into());
    for _ in 0..TEMPORARY_ATTEMPTS {
        let number = TEMPORARIES.fetch_add(1, Ordering::Relaxed);
        let temporary = directory.join(format!(".coppice-{number}.tmp"));
        outcome = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary);
        match outcome {
            Ok(file) => return Ok((temporary, file)),
            Err(ref error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => break,
        }
    }
    outcome.map(|file| (target.to_owned(), file)).during(target, "written")
}

/// Gives a new file the mode that was asked for, or mode and owner of the file whose place it takes.
fn dress(file: &File, path: &Path, present: Option<&Metadata>, mode: Option<u32>) -> std::io::Result<()> {
    let own = file.metadata()?;
    if let Some(present) = present
        && (present.uid(), present.gid()) != (own.uid(), own.gid())
    {
        chown(path, Some(present.uid()), Some(present.gid()))?;
    }
    let kept = present.map_or(DEFAULT_FILE_MODE, |present| present.mode() & MODE_BITS as u32);
    // After the change of owner, which takes set-uid bits away.
    file.set_permissions(Permissions::from_mode(mode.unwrap_or(kept)))
}

/// In place, which is also how a setting under /proc/sys is written.
fn append_to(path: &Path, data: &[u8], mode: Option<u32>) -> Result<()> {
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(mode.unwrap_or(DEFAULT_FILE_MODE));
    // A FIFO without a reader is an error then, and not a wait.
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options
        .open(path)
        .and_then(|mut file| file.write_all(data))
        .during(path, "written")
}

pub fn stat(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let path = to_path(args.path("path")?);
    args.finish()?;
    let metadata = fs::symlink_metadata(&path).during(&path, "looked at")?;
    let result = StatResult {
        kind: kind_of(metadata.file_type()),
        size: metadata.len(),
        mode: metadata.mode() & MODE_BITS as u32,
        mtime_ns: metadata
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.mtime_nsec()),
    };
    context.outbox.ok(key, &result);
    Ok(())
}

pub fn list(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let path = to_path(args.path("path")?);
    args.finish()?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(&path).map_err(|error| not_a_directory(&path, error))? {
        let entry = entry.during(&path, "listed")?;
        let kind = entry.file_type().during(&entry.path(), "looked at")?;
        entries.push(ListEntry {
            name: entry.file_name().to_string_lossy().into_owned(),
            kind: kind_of(kind),
        });
    }
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    context.outbox.ok(key, &ListResult { entries });
    Ok(())
}

fn not_a_directory(path: &Path, error: std::io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::ENOTDIR) => {
            let path = path.to_string_lossy().into_owned();
            FileError::WrongKind {
                path,
                is: "no directory",
                wanted: "a directory",
            }
        }
        other => failed(path, "listed", Errno::from_raw(other.unwrap_or(libc::EIO))),
    }
}

pub fn make_directory(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let path = to_path(args.path("path")?);
    let mode = take_mode(&mut args)?;
    args.finish()?;
    let existed = path.is_dir();
    if let Err(error) = DirBuilder::new()
        .recursive(true)
        .mode(DEFAULT_DIRECTORY_MODE)
        .create(&path)
    {
        let blocked = error.kind() == ErrorKind::AlreadyExists;
        let wrong = FileError::WrongKind {
            path: path.to_string_lossy().into_owned(),
            is: "something else already",
            wanted: "a directory",
        };
        return if blocked {
            Err(wrong)
        } else {
            Err(error).during(&path, "made")
        };
    }
    if let (Some(mode), false) = (mode, existed) {
        // Not left to the umask.
        fs::set_permissions(&path, Permissions::from_mode(mode)).during(&path, "made")?;
    }
    context.outbox.ok(key, &Empty {});
    Ok(())
}

/// `file.move`: to another name on the same file system; what is there is replaced, as rename(2) has it.
pub fn move_entry(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let from = to_path(args.path("from")?);
    let to = to_path(args.path("to")?);
    args.finish()?;
    match fs::rename(&from, &to) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            let [from, to] = [from, to].map(|path| path.to_string_lossy().into_owned());
            return Err(FileError::OtherFileSystem { from, to });
        }
        moved => moved.during(&from, "moved")?,
    }
    context.outbox.ok(key, &Empty {});
    Ok(())
}

/// `file.symlink`: what it names need not exist.
pub fn make_link(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let target = args.string("target")?;
    let path = to_path(args.path("path")?);
    args.finish()?;
    std::os::unix::fs::symlink(target, &path).during(&path, "made")?;
    context.outbox.ok(key, &Empty {});
    Ok(())
}

pub fn read_link(context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
    let mut args = Args::new(args)?;
    let path = to_path(args.path("path")?);
    args.finish()?;
    let target = fs::read_link(&path).map_err(|error| not_a_link(&path, error))?;
    let target = target.to_string_lossy().into_owned();
    context.outbox.ok(key, &LinkResult { target });
    Ok(())
}

fn not_a_link(path: &Path, error: std::io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::EINVAL) => FileError::WrongKind {
            path: path.to_string_lossy().into_owned(),
            is: "no link",
            wanted: "a link",
        },
        other => failed(path, "read", Errno::from_raw(other.unwrap_or(libc::EIO))),
    }
}

/// Removes a file, a link (never what it names) or an empty directory.
pub fn remove_one(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => fs::remove_dir(path).during(path, "removed"),
        other => other.during(path, "removed"),
    }
}

/// The directory that holds `path`, and its name there. `None` for `/` and for what ends in `.` or `..`.
pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    // `file_name` ignores a trailing `/.`, which would make another directory of it.
    let ends_in_dot = path.as_os_str().as_bytes().ends_with(b"/.");
    (!ends_in_dot)
        .then(|| Some((path.parent()?, path.file_name()?)))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_refuses_paths_that_name_no_entry() {
        for path in ["/", "/a/..", "/a/.", "/.."] {
            assert_eq!(split(Path::new(path)), None, "{path}");
        }
        assert_eq!(split(Path::new("/a/b/")), Some((Path::new("/a"), OsStr::new("b"))));
    }

    #[test]
    fn failed_turns_common_errors_into_codes_of_their_own() {
        let code = |errno| failed(Path::new("/x"), "read", errno).code();
        assert_eq!(code(Errno::ENOENT), "FILE_NOT_FOUND");
        assert_eq!(code(Errno::EISDIR), "FILE_WRONG_KIND");
        assert_eq!(code(Errno::ENOSPC), "FILE_NO_SPACE");
        assert_eq!(code(Errno::EACCES), "FILE_FAILED");
    }
}
