//! File requests that are done at once. Reading and recursive removal, which may take long, are jobs (`file_jobs`).

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

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
struct ListResult {
    entries: Vec<ListEntry>,
}

/// Counts temporary files, so that each has a name of its own.
#[derive(Default)]
pub struct Files {
    temporaries: u64,
}

impl Files {
    /// `file.write`: as a whole or not at all, unless it appends.
    pub fn write(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let path = to_path(args.path("path")?);
        let data = args.bytes("data")?;
        let mode = args.optional_integer("mode", 0..=MODE_BITS)?.map(|mode| mode as u32);
        let append = args.flag("append")?;
        args.finish()?;
        if append {
            append_to(&path, &data, mode)?;
        } else {
            self.replace(&path, &data, mode)?;
        }
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    /// Writes a temporary file beside the target and renames it. A link is followed: the file that it names is replaced.
    fn replace(&mut self, path: &Path, data: &[u8], mode: Option<u32>) -> Result<()> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).during(path, "written"),
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
        let (temporary, mut file) = self.temporary_beside(&target)?;
        let written = file
            .write_all(data)
            .and_then(|()| dress(&file, &temporary, present.as_ref(), mode))
            .and_then(|()| fs::rename(&temporary, &target));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.during(path, "written")
    }

    fn temporary_beside(&mut self, target: &Path) -> Result<(PathBuf, File)> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        let mut outcome = Err(ErrorKind::AlreadyExists.into());
        for _ in 0..TEMPORARY_ATTEMPTS {
            self.temporaries += 1;
            let temporary = directory.join(format!(".coppice-{}.tmp", self.temporaries));
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
    let mode = args.optional_integer("mode", 0..=MODE_BITS)?.map(|mode| mode as u32);
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
