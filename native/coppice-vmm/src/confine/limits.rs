//! Resource limits.

use std::io;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::{Mode, umask};

/// A VMM has up to fourteen descriptors: streams, socket, memory, image, KVM, VM, vCPUs, and two that are lent. Its disk has two of
/// the extent that it writes to, and one of each that it has inherited, of which there are at most 41 (`Store::adopt`).
/// While it forks it has both sockets. The rest is room for messages that carry descriptors.
pub const OPEN_FILES: rlim_t = 64;

/// Processes of one user of its own: a template's whole family, with the threads of vCPUs and KVM's worker of each. Far
/// above what a host's memory holds, far below what its process table does.
const PROCESSES: rlim_t = 65_536;

/// `own_user`: no other processes count against the limit on processes.
pub fn apply(own_user: bool) -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o777));
    let nothing = [
        // A core dump would be a copy of the guest's memory where anybody may look for it.
        Resource::RLIMIT_CORE,
        // Nothing is locked, queued or run with real-time priority.
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_MSGQUEUE,
        Resource::RLIMIT_RTPRIO,
    ];
    nothing.into_iter().try_for_each(|resource| lower(resource, 0))?;
    lower(Resource::RLIMIT_NOFILE, OPEN_FILES)?;
    if own_user {
        lower(Resource::RLIMIT_NPROC, PROCESSES)?;
    }
    Ok(())
}

/// Bounds how large a file may become that this process and its forks write to. A write above it is an error and nothing
/// worse.
pub fn file_size(bytes: u64) -> io::Result<()> {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
    lower(Resource::RLIMIT_FSIZE, bytes)
}

fn lower(resource: Resource, to: rlim_t) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let to = to.min(hard);
    Ok(setrlimit(resource, to, to)?)
}
