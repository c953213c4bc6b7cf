//! Finds out whether a terminal waits for input: whether its foreground programs have done all that they can do with
//! what was typed.
//!
//! The terminal waits when, at one moment,
//!
//! 1. nothing that was typed is unread (the caller checks this before), and
//! 2. some thread of the foreground process group sleeps in a read of this terminal (`read`, `readv`), or in a wait for
//!    its readiness (`poll`, `select`, `epoll_wait` and their kin, with this terminal among what is waited for), and
//! 3. every other thread of the group sleeps too (is neither running nor in an uninterruptible wait), and no process of
//!    the group that does not itself wait for the terminal sleeps by the clock (`nanosleep`, `select` without files).
//!
//! Nothing else can then happen on the terminal without input, a signal or an event from outside. A terminal read
//! through io_uring or by a 32-bit program is not recognised: the request then ends by its time limit.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use crate::procfs::{self, Activity, Stat};
use crate::sys::Result;

/// Processes looked at; a session with more of them does not count as waiting.
const MAX_PROCESSES: usize = 4096;

/// Entries of a poll set that are looked at.
const MAX_POLL_ENTRIES: u64 = 1024;

/// The process whose group has the terminal, kept open: it is looked at again and again.
struct KeptProcess {
    pid: i32,
    stat: OwnedFd,
    syscall: OwnedFd,
    children: OwnedFd,
}

impl KeptProcess {
    fn open(pid: i32) -> Result<Self> {
        Ok(Self {
            pid,
            stat: procfs::open(pid, "stat")?,
            syscall: procfs::open(pid, "syscall")?,
            children: procfs::open(pid, &format!("task/{pid}/children"))?,
        })
    }
}

/// What a sleeping thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Terminal,
    Clock,
    Other,
    /// It does not sleep.
    None,
}

/// One thread of the foreground group, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sighting {
    tid: i32,
    wait: Wait,
    marker: Option<(u64, u64)>,
}

/// The foreground group at rest. Two equal ones with markers mean that no thread has run between them.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    sightings: Vec<Sighting>,
}

impl Rest {
    /// Whether one thread alone makes the group: then one look is as good as two.
    pub fn is_single(&self) -> bool {
        self.sightings.len() == 1
    }
}

#[derive(Default)]
pub struct Inspector {
    kept: Option<KeptProcess>,
}

/// Which processes may belong to a terminal's foreground.
pub struct Scene<'a> {
    /// The terminal's path.
    pub terminal: &'a str,
    /// Leader of the terminal's session.
    pub leader: i32,
    /// Foreground process group.
    pub foreground: i32,
    /// Roots of process trees beside the leader's: processes whose parents are gone.
    pub orphans: &'a [i32],
}

impl Inspector {
    /// Whether the process that was looked at last surely runs on: one cheap look before a thorough one.
    pub fn is_surely_busy(&self) -> bool {
        let activity = self.kept.as_ref().map(|kept| procfs::read_activity(&kept.syscall));
        matches!(activity, Some(Ok(Activity::Running)))
    }

    /// The foreground group where it is at rest and waits for the terminal. `with_markers`: so that two looks can be
    /// compared.
    pub fn look(&mut self, scene: &Scene, with_markers: bool) -> Option<Rest> {
        if self.kept.as_ref().is_none_or(|kept| kept.pid != scene.foreground) {
            self.kept = KeptProcess::open(scene.foreground).ok();
        }
        let mut sightings = Vec::new();
        let mut seen = HashSet::new();
        let mut pending: Vec<i32> = scene.orphans.iter().copied().chain([scene.leader]).collect();
        while let Some(pid) = pending.pop() {
            if !seen.insert(pid) {
                continue;
            }
            if seen.len() > MAX_PROCESSES {
                return None;
            }
            let Ok(stat) = self.stat(pid) else {
                continue;
            };
            if stat.session != scene.leader {
                continue;
            }
            let threads = if stat.threads > 1 {
                procfs::threads(pid).unwrap_or_default()
            } else {
                vec![pid]
            };
            if stat.group == scene.foreground {
                self.sight_process(scene, &stat, &threads, with_markers, &mut sightings)?;
            }
            for tid in threads {
                pending.extend(self.children(tid));
            }
        }
        sightings.sort_by_key(|sighting| sighting.tid);
        sightings
            .iter()
            .any(|sighting| sighting.wait == Wait::Terminal)
            .then_some(Rest { sightings })
    }

    fn kept_of(&self, pid: i32) -> Option<&KeptProcess> {
        self.kept.as_ref().filter(|kept| kept.pid == pid)
    }

    fn stat(&self, tid: i32) -> Result<Stat> {
        match self.kept_of(tid) {
            Some(kept) => procfs::read_stat(&kept.stat),
            None => procfs::read_stat(&procfs::open(tid, "stat")?),
        }
    }

    fn activity(&self, tid: i32) -> Result<Activity> {
        match self.kept_of(tid) {
            Some(kept) => procfs::read_activity(&kept.syscall),
            None => procfs::read_activity(&procfs::open(tid, "syscall")?),
        }
    }

    fn children(&self, tid: i32) -> Vec<i32> {
        let children = match self.kept_of(tid) {
            Some(kept) => procfs::read_children(&kept.children),
            None => procfs::children(tid),
        };
        children.unwrap_or_default()
    }

    /// Looks at each thread of one process of the group; `None` where it is not at rest.
    fn sight_process(
        &self,
        scene: &Scene,
        stat: &Stat,
        threads: &[i32],
        with_markers: bool,
        sightings: &mut Vec<Sighting>,
    ) -> Option<()> {
        let first = sightings.len();
        for &tid in threads {
            let state = if threads.len() == 1 { Ok(*stat) } else { self.stat(tid) };
            let wait = match state.map(|stat| stat.state) {
                // Ended between the listing and the look.
                Err(_) | Ok(b'Z' | b'X') => continue,
                Ok(b'T' | b't' | b'I') => Wait::Other,
                Ok(b'S') => self.wait_of(scene, tid),
                Ok(_) => Wait::None,
            };
            if wait == Wait::None {
                return None;
            }
            let marker = if with_markers {
                Some(procfs::run_marker(tid).ok()?)
            } else {
                None
            };
            sightings.push(Sighting { tid, wait, marker });
        }
        let process = &sightings[first..];
        let reads_terminal = process.iter().any(|sighting| sighting.wait == Wait::Terminal);
        let sleeps_by_clock = process.iter().any(|sighting| sighting.wait == Wait::Clock);
        (reads_terminal || !sleeps_by_clock).then_some(())
    }

    fn wait_of(&self, scene: &Scene, tid: i32) -> Wait {
        match self.activity(tid) {
            Ok(Activity::InSyscall { number, arguments }) => classify(tid, number, &arguments, scene.terminal),
            // Between two calls, or handling a fault: not at rest.
            Ok(Activity::Running | Activity::OutsideSyscall) | Err(_) => Wait::None,
        }
    }
}

/// What a thread that sleeps in this system call waits for.
fn classify(tid: i32, number: i64, arguments: &[u64; 6], terminal: &str) -> Wait {
    let is_terminal = |fd: i32| procfs::is_terminal(tid, fd, terminal);
    let reads = match number {
        libc::SYS_read | libc::SYS_readv => is_terminal(arguments[0] as i32),
        libc::SYS_poll | libc::SYS_ppoll if arguments[1] == 0 => return Wait::Clock,
        libc::SYS_poll | libc::SYS_ppoll => polled(tid, arguments[0], arguments[1]).into_iter().any(is_terminal),
        libc::SYS_select | libc::SYS_pselect6 if arguments[..4].iter().skip(1).all(|set| *set == 0) => {
            return Wait::Clock;
        }
        libc::SYS_select | libc::SYS_pselect6 => selected(tid, arguments[0], arguments[1]).into_iter().any(is_terminal),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            procfs::epoll_readers(tid, arguments[0] as i32)
                .unwrap_or_default()
                .into_iter()
                .any(is_terminal)
        }
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => return Wait::Clock,
        _ => false,
    };
    if reads { Wait::Terminal } else { Wait::Other }
}

/// Descriptors that a poll set waits to read from.
fn polled(tid: i32, address: u64, count: u64) -> Vec<i32> {
    const ENTRY_BYTES: usize = size_of::<libc::pollfd>();
    let mut memory = vec![0; count.min(MAX_POLL_ENTRIES) as usize * ENTRY_BYTES];
    if procfs::read_memory(tid, address, &mut memory).is_err() {
        return Vec::new();
    }
    let entry = |bytes: &[u8]| {
        let fd = i32::from_ne_bytes(*bytes.first_chunk()?);
        let events = i16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        (fd >= 0 && events & (libc::POLLIN | libc::POLLRDNORM) != 0).then_some(fd)
    };
    memory.chunks_exact(ENTRY_BYTES).filter_map(entry).collect()
}

/// Descriptors in the read set of a select.
fn selected(tid: i32, count: u64, address: u64) -> Vec<i32> {
    const WORD_BITS: u64 = 64;
    let count = count.min(MAX_POLL_ENTRIES);
    let mut memory = vec![0; count.div_ceil(WORD_BITS) as usize * size_of::<u64>()];
    if address == 0 || procfs::read_memory(tid, address, &mut memory).is_err() {
        return Vec::new();
    }
    (0..count as i32)
        .filter(|fd| memory[*fd as usize / 8] & (1 << (fd % 8)) != 0)
        .collect()
}
