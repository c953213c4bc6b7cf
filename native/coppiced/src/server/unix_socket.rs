//! The Unix socket: private to its user, never taken from a daemon that lives, gone when this one is.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use tokio::net::UnixListener;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("Socket path {0} has no directory")]
    NoDirectory(PathBuf),
    #[error("Directory {directory} can't be used: {source}")]
    Directory { directory: PathBuf, source: io::Error },
    #[error(
        "Directory {directory} must belong to this user and have mode 0700; it has mode {mode:04o} and owner {owner}"
    )]
    Unsafe { directory: PathBuf, mode: u32, owner: u32 },
    #[error("Another daemon answers on {0}; stop it first, or use another path")]
    InUse(PathBuf),
    #[error("{0} exists and is not a socket; move it away")]
    NotASocket(PathBuf),
    #[error("Socket {path} can't be made: {source}")]
    Bind { path: PathBuf, source: io::Error },
}

/// A listener whose socket file goes with it.
pub struct UnixSocket {
    pub listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        prepare_directory(path)?;
        remove_stale(path)?;
        // Between bind and chmod anybody could connect; the mask leaves no such moment.
        let mask = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(mask);
        let failed = |source| SocketError::Bind {
            path: path.to_owned(),
            source,
        };
        let listener = bound.map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(UnixSocket {
            listener,
            path: path.to_owned(),
        })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // It may have been removed by its user.
        let _ = fs::remove_file(&self.path);
    }
}

fn prepare_directory(path: &Path) -> Result<(), SocketError> {
    let no_directory = || SocketError::NoDirectory(path.to_owned());
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .ok_or_else(no_directory)?;
    let failed = |source| SocketError::Directory {
        directory: directory.to_owned(),
        source,
    };
    match DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let metadata = fs::metadata(directory).map_err(failed)?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    if mode & 0o077 != 0 || owner != geteuid().as_raw() {
        return Err(SocketError::Unsafe {
            directory: directory.to_owned(),
            mode,
            owner,
        });
    }
    Ok(())
}

/// Removes a socket file on which nobody answers.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(_) => return Ok(()),
    };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.to_owned()));
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "Replacing a socket on which nobody answers");
            fs::remove_file(path).map_err(|source| SocketError::Bind {
                path: path.to_owned(),
                source,
            })
        }
        _ => Err(SocketError::InUse(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("coppiced-socket-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[tokio::test]
    async fn bind_makes_a_private_socket_and_removes_it_at_the_end() {
        let directory = directory("private");
        let path = directory.join("host.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        drop(socket);
        assert!(!path.exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn bind_given_a_stale_socket_replaces_it_and_given_a_live_one_refuses() {
        let directory = directory("stale");
        let path = directory.join("host.sock");
        let socket = UnixSocket::bind(&path).unwrap();
        assert!(matches!(UnixSocket::bind(&path), Err(SocketError::InUse(_))));
        std::mem::forget(socket); // as after kill -9: the file stays
        let other = directory.join("other.sock");
        drop(std::os::unix::net::UnixListener::bind(&other).unwrap());
        assert!(UnixSocket::bind(&other).is_ok());
        fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn bind_given_a_directory_that_others_can_enter_or_a_file_refuses() {
        let directory = directory("open");
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let path = directory.join("host.sock");
        assert!(matches!(
            UnixSocket::bind(&path),
            Err(SocketError::Unsafe { mode: 0o755, .. })
        ));
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(matches!(UnixSocket::bind(&path), Err(SocketError::NotASocket(_))));
        fs::remove_dir_all(directory).unwrap();
    }
}
