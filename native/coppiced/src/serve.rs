//! `coppiced serve`

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::cli::ServeArgs;
use crate::host::Config;
use crate::limits::HostLimits;
use crate::server::handshake::{Token, TokenError};
use crate::server::listener::Entrance;
use crate::server::run::{Endpoints, ServeError, serve};
use crate::server::tls::{Identity, Tls, TlsError};

const MIB: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{option} {path} can't be used: {source}")]
    File {
        option: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{option} {path} is not a file")]
    NotAFile { option: &'static str, path: PathBuf },
    #[error("State directory {0} is in use by another daemon; stop it first, or use another directory")]
    InUse(PathBuf),
    #[error("--token-file {path}: {source}")]
    Token { path: PathBuf, source: TokenError },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

pub fn run(arguments: ServeArgs) -> Result<(), StartError> {
    let idle_exit = arguments.idle_exit();
    let lock = lock(arguments.state_dir.clone())?;
    let tls = tls(&arguments)?;
    let config = Config {
        kind: arguments.host_kind,
        vmm: file("--vmm", arguments.vmm)?,
        kernel: file("--kernel", arguments.kernel)?,
        initrd: file("--initrd", arguments.initrd)?,
        extents: extents_directory(arguments.extents_dir, &arguments.state_dir)?,
        idle_exit,
        max_sandboxes: arguments.max_sandboxes as usize,
        memory_reserve_bytes: arguments.memory_reserve_mib.map(|mib| mib.saturating_mul(MIB)),
        disk_reserve_bytes: arguments.disk_reserve_mib.map(|mib| mib.saturating_mul(MIB)),
        cgroups: arguments.cgroup,
        limits: HostLimits {
            memory_mib: arguments.sandbox_memory_mib,
            cpus: arguments.sandbox_cpus,
            console_rate: arguments.sandbox_console_rate,
        },
    };
    let tcp = match (arguments.tcp, arguments.token_file) {
        (Some(address), Some(path)) => {
            let token = read_token(path)?;
            Some((address, Entrance { token, tls }))
        }
        _ => None,
    };
    let served = serve(
        config,
        Endpoints {
            unix: arguments.unix,
            tcp,
            metrics: arguments.metrics,
        },
    );
    drop(lock);
    Ok(served?)
}

/// An absolute path: VMMs run in another directory.
fn file(option: &'static str, path: PathBuf) -> Result<PathBuf, StartError> {
    let absolute = fs::canonicalize(&path);
    let absolute = absolute.map_err(|source| StartError::File {
        option,
        path: path.clone(),
        source,
    })?;
    if !absolute.is_file() {
        return Err(StartError::NotAFile { option, path });
    }
    Ok(absolute)
}

/// An absolute path without symbolic links, as `/proc` shows where a process's files are.
fn extents_directory(given: Option<PathBuf>, state_directory: &Path) -> Result<PathBuf, StartError> {
    let path = given.unwrap_or_else(|| state_directory.join("extents"));
    // Where it can't be made guests get no disks, and all else works.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    let absolute = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path));
    absolute.map_err(|source| StartError::File {
        option: "--extents-dir",
        path,
        source,
    })
}

/// None where no client comes over a network, or its user wants none.
fn tls(arguments: &ServeArgs) -> Result<Option<Tls>, StartError> {
    let Some(address) = arguments.tcp.map(|address| address.ip()) else {
        return Ok(None);
    };
    let leaves_this_machine = !address.is_loopback();
    let identity = match (&arguments.tls_certificate, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        _ if arguments.tls || (leaves_this_machine && !arguments.insecure_tcp) => {
            Identity::own(&arguments.state_dir, address)?
        }
        _ => {
            if leaves_this_machine {
                tracing::warn!(
                    "Listens on a network without TLS: whoever is on the way can read the token, and use it"
                );
            }
            return Ok(None);
        }
    };
    Ok(Some(Tls::new(&identity)?))
}

fn read_token(path: PathBuf) -> Result<Token, StartError> {
    let token = fs::read_to_string(&path)
        .map_err(TokenError::from)
        .and_then(|text| Token::new(&text));
    token.map_err(|source| StartError::Token { path, source })
}

/// Held for the daemon's life; the kernel lets go of it however the daemon ends.
fn lock(directory: PathBuf) -> Result<Flock<File>, StartError> {
    let failed = |source| StartError::File {
        option: "--state-dir",
        path: directory.clone(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(failed)?;
    let options = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join("coppiced.lock"));
    let file = options.map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => StartError::InUse(directory.clone()),
        error => failed(error.into()),
    })
}
