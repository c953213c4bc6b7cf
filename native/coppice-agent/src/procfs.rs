//! Looks at other processes through /proc: what they are doing at this moment.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::sys::{self, Result};

/// Longest `stat`, `syscall` or `schedstat` line, with room to spare.
const LINE_BYTES: usize = 1024;

/// The parts of `/proc/TID/stat` that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: u8,
    pub group: i32,
    pub session: i32,
    pub threads: i32,
}

/// What `/proc/TID/syscall` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It runs or is about to.
    Running,
    /// It sleeps outside of any system call.
    OutsideSyscall,
    InSyscall {
        number: i64,
        arguments: [u64; 6],
    },
}

fn path(tid: i32, file: &str) -> CString {
    CString::new(format!("/proc/{tid}/{file}")).unwrap_or_default()
}

pub fn open(tid: i32, file: &str) -> Result<OwnedFd> {
    sys::open(&path(tid, file), libc::O_RDONLY, 0)
}

/// Reads the one line of an open /proc file anew.
fn read_line<T>(fd: &OwnedFd, parse: impl FnOnce(&[u8]) -> Option<T>) -> Result<T> {
    let mut line = [0; LINE_BYTES];
    let count = sys::pread(fd.as_raw_fd(), &mut line, 0)?;
    parse(&line[..count]).ok_or(Errno::EPROTO)
}

pub fn read_stat(fd: &OwnedFd) -> Result<Stat> {
    read_line(fd, parse_stat)
}

pub fn read_activity(fd: &OwnedFd) -> Result<Activity> {
    read_line(fd, parse_activity)
}

/// A value that changes whenever the thread runs.
pub fn run_marker(tid: i32) -> Result<(u64, u64)> {
    read_line(&open(tid, "schedstat")?, parse_schedstat)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The program's name stands in parentheses and may hold anything, also parentheses.
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&line[after_name..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let group = fields.nth(1)?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let threads = fields.nth(13)?.parse().ok()?;
    Some(Stat {
        state,
        group,
        session,
        threads,
    })
}

fn parse_activity(line: &[u8]) -> Option<Activity> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let number = match fields.next()? {
        "running" => return Some(Activity::Running),
        number => number.parse::<i64>().ok()?,
    };
    if number < 0 {
        return Some(Activity::OutsideSyscall);
    }
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Activity::InSyscall { number, arguments })
}

fn parse_schedstat(line: &[u8]) -> Option<(u64, u64)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let run_ns = fields.next()?.parse().ok()?;
    let slices = fields.nth(1)?.parse().ok()?;
    Some((run_ns, slices))
}

/// Reads a whole /proc file that may be longer than a line.
fn read_all(fd: &OwnedFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match sys::pread(fd.as_raw_fd(), &mut piece, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn numbers(bytes: &[u8]) -> Vec<i32> {
    let words = bytes.split(|byte| byte.is_ascii_whitespace());
    words
        .filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
        .collect()
}

/// Processes that the thread started (or inherited) and that live, from an open `task/TID/children`.
pub fn read_children(fd: &OwnedFd) -> Result<Vec<i32>> {
    let mut line = [0; LINE_BYTES];
    match sys::pread(fd.as_raw_fd(), &mut line, 0)? {
        count if count < LINE_BYTES => Ok(numbers(&line[..count])),
        _ => Ok(numbers(&read_all(fd)?)),
    }
}

pub fn children(tid: i32) -> Result<Vec<i32>> {
    read_children(&open(tid, &format!("task/{tid}/children"))?)
}

pub fn threads(pid: i32) -> Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// Whether descriptor `fd` of the thread is the terminal whose path is `terminal` (`/dev/pts/3`).
///
/// Compares names, not inodes: `stat` would ask the file system behind the descriptor, and a hostile program could
/// let that one wait forever.
pub fn is_terminal(tid: i32, fd: i32, terminal: &str) -> bool {
    let mut target = [0u8; 64];
    let link = path(tid, &format!("fd/{fd}"));
    // SAFETY: `link` ends in NUL; `target` is writable for the length given.
    let count = unsafe { libc::readlink(link.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    let Ok(count) = usize::try_from(count) else {
        return false;
    };
    let target = &target[..count];
    // Programs that ask for the controlling terminal by its other name; in another mount namespace the path of the
    // terminal may be longer.
    let end = terminal.strip_prefix("/dev").unwrap_or(terminal);
    target == b"/dev/tty" || target == terminal.as_bytes() || target.ends_with(end.as_bytes())
}

/// Copies `buffer.len()` bytes at `address` of another process.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> Result<()> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: `local` describes `buffer`, which is writable; `remote` is checked by the kernel.
    let count = Errno::result(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) })?;
    if count as usize == buffer.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Descriptors that an epoll instance watches for input.
pub fn epoll_readers(tid: i32, epoll: i32) -> Result<Vec<i32>> {
    let text = read_all(&open(tid, &format!("fdinfo/{epoll}"))?)?;
    Ok(parse_epoll_readers(&String::from_utf8_lossy(&text)))
}

fn parse_epoll_readers(text: &str) -> Vec<i32> {
    let entry = |line: &str| {
        let mut fields = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let fd = fields.next()?.parse().ok()?;
        let events = u32::from_str_radix(fields.nth(1)?, 16).ok()?;
        (events & sys::READABLE != 0).then_some(fd)
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_program_with_parentheses_in_its_name_is_read_after_the_last() {
        let line = b"42 (a) S (b) R 1 40 39 34816 40 4194304 1 2 3 4 5 6 7 8 20 0 3 0 99\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: b'R',
                group: 40,
                session: 39,
                threads: 3
            }
        );
    }

    #[test]
    fn activity_of_a_thread_in_a_read_has_its_arguments() {
        let line = b"0 0x3 0x7f89fa8e4000 0x20000 0x0 0xffffffff 0x0 0x7ffe81e3f468 0x7f89faa602ad\n";
        let expected = Activity::InSyscall {
            number: 0,
            arguments: [3, 0x7f89_fa8e_4000, 0x20000, 0, 0xffff_ffff, 0],
        };
        assert_eq!(parse_activity(line), Some(expected));
        assert_eq!(parse_activity(b"running\n"), Some(Activity::Running));
        assert_eq!(parse_activity(b"-1 0x7ffe 0x7f89\n"), Some(Activity::OutsideSyscall));
    }

    #[test]
    fn epoll_readers_skip_entries_that_wait_for_something_else() {
        let text = "pos:\t0\nflags:\t02\ntfd:        0 events:       19 data: 0 pos:0 ino:3 sdev:18\n\
                    tfd:        9 events: 4 data: 9 pos:0 ino:3 sdev:18\n";
        assert_eq!(parse_epoll_readers(text), [0]);
    }
}
