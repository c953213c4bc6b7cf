//! A handle on one VMM process, as the daemon has it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use coppice_wire::blank::{BLOCK_BYTES, Blank};
use coppice_wire::encode_frame;
use coppice_wire::frame::read_message;
use coppice_wire::vmm::{BootConfig, Command, Event, GuestEnd, LentFile, Stages, host_time_ns};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

pub type Runs = Vec<(u64, u64)>;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Longest wait for one event. Guests of an emulated host on a busy machine take minutes to boot.
const PATIENCE: Duration = Duration::from_secs(300);

/// Size of the machines' disks: 4 GiB.
pub const DISK_BLOCKS: u64 = 1 << 20;

pub struct Vmm {
    pub socket: UnixStream,
    pub pid: u32,
    pub console: Vec<u8>,
    /// Agent payloads that came while something else was waited for.
    pub inbox: Vec<Vec<u8>>,
    /// Whether its children can be rewound.
    pub makes_rewindable: bool,
}

pub struct Forked {
    pub child: Vmm,
    /// From the request to the child's `Started`.
    pub started: Duration,
    pub fork_stages: Stages,
    pub start_stages: Stages,
}

impl Vmm {
    pub fn spawn(program: &str) -> Outcome<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let theirs: OwnedFd = theirs.into();
        let number = theirs.as_raw_fd();
        let mut process = Process::new(program);
        process.args(["--control-fd", &number.to_string()]);
        // SAFETY: fcntl is async-signal-safe; the descriptor stays open until the spawn is over.
        unsafe {
            process.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let pid = process.spawn()?.id();
        Ok(Self {
            socket: ours,
            pid,
            console: Vec::new(),
            inbox: Vec::new(),
            makes_rewindable: false,
        })
    }

    pub fn boot(program: &str, config: &BootConfig) -> Outcome<(Self, Stages)> {
        let mut vmm = Self::spawn(program)?;
        let config = BootConfig {
            disk: true,
            ..config.clone()
        };
        vmm.send_with(&Command::Boot { config }, &[blank_disk()?.as_fd()])?;
        let Event::Started { stages, .. } = vmm.event()? else {
            return Err("expected Started".into());
        };
        let ready = vmm.payload()?;
        if ready != b"ready" {
            return Err(format!("expected ready, got {}", String::from_utf8_lossy(&ready)).into());
        }
        Ok((vmm, stages))
    }

    pub fn send(&mut self, command: &Command) -> Outcome<()> {
        Ok(io::Write::write_all(&mut self.socket, &encode_frame(command)?)?)
    }

    fn send_with(&self, command: &Command, descriptors: &[BorrowedFd<'_>]) -> Outcome<()> {
        let descriptors: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&encode_frame(command)?)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::empty(),
            None,
        )?;
        Ok(())
    }

    /// Lends the VMM a file of its own, which it can't open.
    fn lend(&self, file: LentFile) -> Outcome<()> {
        self.lend_of(self.pid, file)
    }

    fn lend_of(&self, pid: u32, file: LentFile) -> Outcome<()> {
        let name = match file {
            LentFile::Statm => "statm",
            LentFile::Pagemap | LentFile::OriginPagemap => "pagemap",
            LentFile::OriginMemory => "mem",
        };
        self.lend_file(file, &File::open(format!("/proc/{pid}/{name}"))?)
    }

    pub fn lend_file(&self, file: LentFile, opened: &File) -> Outcome<()> {
        self.send_with(&Command::Lend { file }, &[opened.as_fd()])
    }

    /// Next event that is not console output.
    pub fn event(&mut self) -> Outcome<Event> {
        loop {
            match read_message::<Event>(&mut self.socket)? {
                None => return Err(format!("VMM {} closed its socket", self.pid).into()),
                Some(Event::Console { data, .. }) => self.console.extend(data),
                Some(Event::ExtentWanted) => self.give_extent()?,
                Some(event) => return Ok(event),
            }
        }
    }

    /// A file for the disk of this life.
    fn give_extent(&self) -> Outcome<()> {
        let writable = memory_file()?;
        let readable = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))?;
        self.send_with(
            &Command::Extent { granted: true },
            &[writable.as_fd(), readable.as_fd()],
        )
    }

    /// Next event that is neither console output nor an agent payload.
    pub fn answer(&mut self) -> Outcome<Event> {
        loop {
            match self.event()? {
                Event::Agent { data } => self.inbox.push(data),
                event => return Ok(event),
            }
        }
    }

    pub fn payload(&mut self) -> Outcome<Vec<u8>> {
        if !self.inbox.is_empty() {
            return Ok(self.inbox.remove(0));
        }
        match self.event()? {
            Event::Agent { data } => Ok(data),
            other => Err(format!("expected an agent payload, got {other:?}").into()),
        }
    }

    pub fn ask_raw(&mut self, request: &[u8]) -> Outcome<Vec<u8>> {
        self.send(&Command::Agent { data: request.to_vec() })?;
        self.payload()
    }

    pub fn ask(&mut self, request: &str) -> Outcome<String> {
        Ok(String::from_utf8_lossy(&self.ask_raw(request.as_bytes())?).into_owned())
    }

    pub fn number(&mut self, request: &str) -> Outcome<u64> {
        let text = self.ask(request)?;
        Ok(text
            .parse()
            .map_err(|_| format!("{request}: expected a number, got {text:?}"))?)
    }

    pub fn pause(&mut self) -> Outcome<Duration> {
        let start = Instant::now();
        self.lend(LentFile::Pagemap)?;
        self.send(&Command::Pause { when_idle: false })?;
        match self.answer()? {
            Event::Paused { .. } => Ok(start.elapsed()),
            other => Err(format!("expected Paused, got {other:?}").into()),
        }
    }

    pub fn resume(&mut self) -> Outcome<()> {
        let at_ns = host_time_ns();
        self.send(&Command::Resume { at_ns: Some(at_ns) })?;
        match self.answer()? {
            Event::Resumed { .. } => Ok(()),
            other => Err(format!("expected Resumed, got {other:?}").into()),
        }
    }

    pub fn park(&mut self) -> Outcome<(u64, Stages, Duration)> {
        let start = Instant::now();
        self.lend(LentFile::Pagemap)?;
        self.lend(LentFile::Statm)?;
        self.send(&Command::Park)?;
        match self.answer()? {
            Event::Parked {
                dirty_pages, stages, ..
            } => Ok((dirty_pages, stages, start.elapsed())),
            other => Err(format!("expected Parked, got {other:?}").into()),
        }
    }

    pub fn fork(&mut self) -> Outcome<Forked> {
        let start = Instant::now();
        let mut child = self.request_fork(1)?;
        let (pid, fork_stages) = match self.answer()? {
            Event::Forked { pid, stages, .. } => (pid, stages),
            other => return Err(format!("expected Forked, got {other:?}").into()),
        };
        child.pid = pid;
        match child.event()? {
            Event::Started { stages, .. } => Ok(Forked {
                child,
                started: start.elapsed(),
                fork_stages,
                start_stages: stages,
            }),
            other => Err(format!("expected Started, got {other:?}").into()),
        }
    }

    /// Sends `Fork`; the child's handle has no pid yet.
    pub fn request_fork(&mut self, tag: u64) -> Outcome<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let at_ns = host_time_ns();
        let fork = Command::Fork {
            tag,
            at_ns,
            rewindable: self.makes_rewindable,
        };
        self.send_with(&fork, &[theirs.as_fd()])?;
        Ok(Self {
            socket: ours,
            pid: 0,
            console: Vec::new(),
            inbox: Vec::new(),
            makes_rewindable: false,
        })
    }

    /// A frozen copy of the machine as it is; the machine goes on.
    pub fn checkpoint(&mut self) -> Outcome<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        self.lend(LentFile::Statm)?;
        self.send_with(&Command::Checkpoint { tag: 1 }, &[theirs.as_fd()])?;
        let pid = match self.answer()? {
            Event::Checkpointed { pid, .. } => pid,
            other => return Err(format!("expected Checkpointed, got {other:?}").into()),
        };
        let mut copy = Self {
            socket: ours,
            pid,
            console: Vec::new(),
            inbox: Vec::new(),
            makes_rewindable: false,
        };
        match copy.event()? {
            Event::Parked { .. } => Ok(copy),
            other => Err(format!("expected Parked, got {other:?}").into()),
        }
    }

    /// Back to what `origin`, which it was forked from, is; then stopped, before its guest runs, where `and_pause`.
    pub fn rewind(&mut self, origin: u32, and_pause: bool) -> Outcome<(u64, Stages)> {
        self.lend_of(origin, LentFile::OriginMemory)?;
        let at_ns = host_time_ns();
        let mut frames = encode_frame(&Command::Rewind { at_ns })?;
        if and_pause {
            frames.extend(encode_frame(&Command::Pause { when_idle: false })?);
        }
        io::Write::write_all(&mut self.socket, &frames)?;
        self.inbox.clear();
        let rewound = match self.answer()? {
            Event::Rewound { dirty_pages, stages } => (dirty_pages, stages),
            other => return Err(format!("expected Rewound, got {other:?}").into()),
        };
        // What was said before belongs to the life that is over.
        self.inbox.clear();
        if and_pause {
            match self.answer()? {
                Event::Paused { .. } => {}
                other => return Err(format!("expected Paused, got {other:?}").into()),
            }
        }
        Ok(rewound)
    }

    /// Runs of pages and blocks in which it differs from `origin`; both are frozen.
    pub fn compare(&mut self, origin: u32) -> Outcome<(Runs, Runs)> {
        self.lend(LentFile::Pagemap)?;
        self.lend_of(origin, LentFile::OriginMemory)?;
        self.lend_of(origin, LentFile::OriginPagemap)?;
        self.send(&Command::Compare)?;
        match self.answer()? {
            Event::Compared { pages, blocks } => Ok((pages, blocks)),
            other => Err(format!("expected Compared, got {other:?}").into()),
        }
    }

    /// Waits for the guest's own end.
    pub fn ended(&mut self) -> Outcome<(GuestEnd, String)> {
        match self.answer()? {
            Event::GuestEnded { reason, detail } => Ok((reason, detail)),
            other => Err(format!("expected GuestEnded, got {other:?}").into()),
        }
    }

    /// Waits for the process, which is a child of this one whoever forked it.
    pub fn reap(&self) -> Outcome<()> {
        waitpid(Pid::from_raw(self.pid as i32), None)?;
        Ok(())
    }

    /// Closes the socket and waits for the process.
    pub fn close(self) -> Outcome<()> {
        let pid = self.pid;
        drop(self);
        waitpid(Pid::from_raw(pid as i32), None)?;
        Ok(())
    }
}

fn memory_file() -> Outcome<File> {
    Ok(memfd_create(c"extent", MFdFlags::MFD_CLOEXEC)?.into())
}

/// Block 1 is full of 0xb1.
fn blank_disk() -> Outcome<File> {
    let blank = Blank {
        disk_blocks: DISK_BLOCKS,
        places: vec![1],
    };
    let file = memory_file()?;
    file.write_all_at(&blank.encode(&[[0xb1; BLOCK_BYTES]]), 0)?;
    Ok(file)
}
