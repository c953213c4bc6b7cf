//! Trying to cross the barriers from inside: a child process confines itself with the code that a VMM uses, and then
//! attempts what a guest would that has taken its VMM over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::confine::{self, ConfineError, Missing, Threads};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It worked.
    Crossed,
    /// The kernel refused it with this error number.
    Refused(i32),
    Killed(Signal),
    /// The child could not even try.
    Unprepared,
}

/// Forks of the test process share its pages and hold its descriptors for a while. A test that looks whether pages are its
/// own, or whether a peer has hung up, takes this whole.
pub static FORKS: RwLock<()> = RwLock::new(());

const UNPREPARED: i32 = 250;

/// As a VMM whose guest has one vCPU.
pub fn confine(kept: &[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError> {
    confine::confine(kept, Threads::None)
}

/// As one whose guest has several.
pub fn confine_with_threads(kept: &[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError> {
    confine::confine(kept, Threads::ForVcpus)
}

/// A system call with its arguments: `Ok` where it worked.
pub fn attempt(call: i64, arguments: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: runs in a child that lives for nothing else; pointers among the arguments are to its own live memory or
    // null.
    match unsafe { libc::syscall(call, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result as usize),
    }
}

/// What the child works with, as a VMM would.
pub struct Inside {
    pub socket: OwnedFd,
    pub missing: Vec<Missing>,
}

/// Runs `attempt` in a child that was confined by `confine`, which is told what to keep open.
pub fn inside(
    confine: impl FnOnce(&[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError>,
    attempt: impl FnOnce(Inside) -> io::Result<usize>,
) -> End {
    inside_with_peer(confine, attempt).0
}

/// As `inside`; also the other end of the child's socket.
pub fn inside_with_peer(
    confine: impl FnOnce(&[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError>,
    attempt: impl FnOnce(Inside) -> io::Result<usize>,
) -> (End, UnixStream) {
    let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
    let (near, far) = UnixStream::pair().unwrap();
    // SAFETY: glibc makes its allocator usable in the child, and the child takes no lock of the harness: it prints
    // nothing and leaves by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let socket = OwnedFd::from(far);
                let missing = confine(&[socket.as_fd()]).ok()?;
                let inside = Inside { socket, missing };
                Some(match attempt(inside) {
                    Ok(_) => 0,
                    Err(error) => error.raw_os_error().unwrap_or(UNPREPARED - 1),
                })
            }));
            let code = outcome.ok().flatten().unwrap_or(UNPREPARED);
            // SAFETY: ends the child without running what the harness has registered.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            drop(far);
            let end = waitpid(child, None).unwrap();
            let end = match end {
                WaitStatus::Exited(_, 0) => End::Crossed,
                WaitStatus::Exited(_, UNPREPARED) => End::Unprepared,
                WaitStatus::Exited(_, error) => End::Refused(error),
                WaitStatus::Signaled(_, signal, _) => End::Killed(signal),
                other => panic!("{other:?}"),
            };
            (end, near)
        }
    }
}

/// Runs an attempt in a child without barriers, to see that it is one.
pub fn outside(attempt: impl FnOnce(Inside) -> io::Result<usize>) -> End {
    inside(|_| Ok(Vec::new()), attempt)
}

/// An error for what is not as it must be.
pub fn require(condition: bool) -> io::Result<usize> {
    match condition {
        true => Ok(0),
        false => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
    }
}
