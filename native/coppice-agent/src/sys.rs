//! Thin safe forms of the system calls that the event loop makes, so that `unsafe` stays in few places.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

pub type Result<T> = std::result::Result<T, Errno>;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Readiness bits that the agent asks for.
pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;

fn owned(result: libc::c_int) -> Result<OwnedFd> {
    let fd = Errno::result(result)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the whole call. Both clocks that are asked for always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).saturating_mul(NANOS_PER_SECOND) + time.tv_nsec as u64
}

pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

pub fn set_realtime_ns(ns: u64) -> Result<()> {
    let time = libc::timespec {
        tv_sec: (ns / NANOS_PER_SECOND) as libc::time_t,
        tv_nsec: (ns % NANOS_PER_SECOND) as libc::c_long,
    };
    // SAFETY: `time` is a valid timespec for the whole call.
    Errno::result(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) }).map(drop)
}

/// Moves the wall clock forward in one step, whatever it is when the step is made.
pub fn advance_realtime_ns(ns: u64) -> Result<()> {
    // SAFETY: plain integers, for which zero is valid.
    let mut step: libc::timex = unsafe { std::mem::zeroed() };
    step.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
    step.time.tv_sec = (ns / NANOS_PER_SECOND) as libc::time_t;
    // With ADJ_NANO the field holds nanoseconds.
    step.time.tv_usec = (ns % NANOS_PER_SECOND) as libc::suseconds_t;
    // SAFETY: `step` is a valid timex for the whole call.
    Errno::result(unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &mut step) }).map(drop)
}

pub fn epoll_create() -> Result<OwnedFd> {
    // SAFETY: takes no pointers.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

pub fn epoll_ctl(epoll: &OwnedFd, operation: libc::c_int, fd: RawFd, events: u32, token: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: `event` is valid for the whole call; the kernel copies it.
    Errno::result(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) }).map(drop)
}

/// Waits for events; `timeout_ns` absent waits without limit. An interrupted wait reports no event.
pub fn epoll_wait<'a>(
    epoll: &OwnedFd,
    events: &'a mut [libc::epoll_event],
    timeout_ns: Option<u64>,
) -> Result<&'a [libc::epoll_event]> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / NANOS_PER_SECOND) as libc::time_t,
        tv_nsec: (ns % NANOS_PER_SECOND) as libc::c_long,
    });
    let timeout_pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `events` is writable for its whole length and `timeout_pointer` is null or points to `timeout`, which
    // outlives the call; no signal mask is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            events.len() as libc::c_int,
            timeout_pointer,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    match Errno::result(result) {
        Ok(count) => Ok(&events[..count as usize]),
        Err(Errno::EINTR) => Ok(&[]),
        Err(errno) => Err(errno),
    }
}

pub fn read(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: `buffer` is writable for its whole length.
    Errno::result(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }).map(|count| count as usize)
}

pub fn write(fd: RawFd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: `bytes` is readable for its whole length.
    Errno::result(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }).map(|count| count as usize)
}

pub fn pread(fd: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `buffer` is writable for its whole length.
    Errno::result(unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset) })
        .map(|count| count as usize)
}

/// Writes all of `bytes` at `offset` with one call; anything less is an error.
pub fn pwrite_whole(fd: RawFd, bytes: &[u8], offset: u64) -> Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `bytes` is readable for its whole length.
    let count = Errno::result(unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset) })?;
    if count as usize == bytes.len() {
        Ok(())
    } else {
        Err(Errno::EIO)
    }
}

pub fn open(path: &CStr, flags: libc::c_int, mode: libc::mode_t) -> Result<OwnedFd> {
    // SAFETY: `path` ends in NUL and outlives the call.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode as libc::c_uint) })
}

pub fn open_at(directory: RawFd, path: &CStr, flags: libc::c_int) -> Result<OwnedFd> {
    // SAFETY: `path` ends in NUL and outlives the call; no file is created, so no mode is read.
    owned(unsafe { libc::openat(directory, path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// Read end and write end of a new pipe; both blocking, both closed on exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for the two descriptors.
    Errno::result(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

/// Sees to it that no started program inherits a descriptor that this process was started with, beyond the standard
/// three.
pub fn keep_inherited_from_programs() -> Result<()> {
    // SAFETY: takes no pointers; no descriptor is closed here, only marked.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(result).map(drop)
}

/// Has terminals interrupt the programs that are started, also where a shell has started this process in its background: it
/// then ignores interrupts, and programs inherit that.
pub fn stop_ignoring_interrupts() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the default action needs no handler that could be called.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(Errno::last());
        }
    }
    Ok(())
}

pub fn set_nonblocking(fd: RawFd) -> Result<()> {
    let mut on: libc::c_int = 1;
    // SAFETY: FIONBIO reads one int.
    Errno::result(unsafe { libc::ioctl(fd, libc::FIONBIO, &mut on) }).map(drop)
}

/// Bytes that a read would return now.
pub fn readable_bytes(fd: RawFd) -> Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    Errno::result(unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether a read would return something now.
pub fn is_readable(fd: RawFd) -> Result<bool> {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry; a timeout of 0 never waits.
    Errno::result(unsafe { libc::poll(&mut entry, 1, 0) })?;
    Ok(entry.revents & libc::POLLIN != 0)
}

pub fn yield_cpu() {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::sched_yield() };
}

/// Blocks SIGCHLD and returns a non-blocking descriptor that is readable when one is pending.
pub fn child_signals() -> Result<OwnedFd> {
    // SAFETY: an all-zero sigset_t is valid storage for sigemptyset, which initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for all three calls, and SIGCHLD is a valid signal number.
    unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        Errno::result(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))?;
        owned(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// Takes one ended child, whoever started it; `None` where there is none now.
pub fn reap() -> Option<(i32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the whole call.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let ended = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    };
    Some((pid, ended))
}

/// Takes the child `pid`, which has ended or is about to.
pub fn reap_one(pid: i32) {
    // SAFETY: a null status pointer is allowed.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } == -1 && Errno::last() == Errno::EINTR {}
}

pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: takes no pointers.
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// SIGKILL to all of a process group. A group that is gone needs no signal, so that is not an error.
pub fn kill_group(group: i32) {
    if group > 1 {
        let _ = kill(-group, libc::SIGKILL);
    }
}
