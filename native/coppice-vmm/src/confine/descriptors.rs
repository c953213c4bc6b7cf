//! Only the descriptors that a VMM works with stay open.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

const STANDARD_STREAMS: RawFd = 3;

/// Closes everything but the standard streams and `kept`: what somebody above the daemon left open by mistake, and what
/// the set-up needed.
pub fn close_others(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    let mut from = STANDARD_STREAMS;
    for descriptor in kept {
        if descriptor > from {
            close_range(from, descriptor - 1)?;
        }
        from = from.max(descriptor + 1);
    }
    close_range(from, RawFd::MAX)
}

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    // SAFETY: takes integers only. Nothing in this process owns a descriptor that is not in `kept`, see the caller.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Kernels before 5.9.
        error if error.raw_os_error() == Some(libc::ENOSYS) => {
            close_each(first, last);
            Ok(())
        }
        error => Err(error),
    }
}

fn close_each(first: RawFd, last: RawFd) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let end = RawFd::try_from(limit.rlim_max.min(1 << 20)).unwrap_or(RawFd::MAX);
    for descriptor in first..=last.min(end) {
        // SAFETY: as in `close_range`; one that is not open is an error that is of no interest.
        unsafe { libc::close(descriptor) };
    }
}

/// Descriptors below `end` that are open.
#[cfg(test)]
pub fn open_below(end: RawFd) -> Vec<RawFd> {
    // SAFETY: F_GETFL takes no pointer and works on any number.
    (0..end)
        .filter(|descriptor| unsafe { libc::fcntl(*descriptor, libc::F_GETFL) } >= 0)
        .collect()
}
