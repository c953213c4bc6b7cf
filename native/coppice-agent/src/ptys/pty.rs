//! One terminal and the program on it: its two ends, what was printed and not yet taken, what was typed and not yet
//! accepted.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use crate::sys::{self, ExitStatus, Result};
use crate::terminal::{Inspector, Scene};

/// Output kept while nobody waits for it; beyond it the oldest is dropped and counted.
pub const IDLE_BUFFER_BYTES: usize = 1024 * 1024;

/// Size of the window, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub columns: u16,
    pub rows: u16,
}

/// Both ends of a new terminal.
pub struct Ends {
    pub master: OwnedFd,
    /// Kept open by the agent as well, to ask about unread input, and so that the master never reports a hang-up while
    /// programs of the session come and go.
    pub slave: OwnedFd,
    /// `/dev/pts/N`.
    pub path: String,
}

impl Ends {
    pub fn open(window: Window) -> Result<Self> {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
        let master = sys::open(c"/dev/ptmx", flags, 0)?;
        let mut unlock: libc::c_int = 0;
        let mut number: libc::c_uint = 0;
        // SAFETY: TIOCSPTLCK reads one int and TIOCGPTN writes one unsigned int, both valid for their calls.
        unsafe {
            Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &mut unlock))?;
            Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &mut number))?;
        }
        let slave = open_peer(&master)?;
        set_window(&master, window)?;
        Ok(Self {
            master,
            slave,
            path: format!("/dev/pts/{number}"),
        })
    }
}

fn open_peer(master: &OwnedFd) -> Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes its flags by value and returns a new descriptor.
    let slave = Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(slave) })
}

fn set_window(master: &OwnedFd, window: Window) -> Result<()> {
    let size = libc::winsize {
        ws_row: window.rows,
        ws_col: window.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one winsize.
    Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size) }).map(drop)
}

/// Whether more may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All that was printed so far is in the buffer.
    Dry,
    /// The buffer holds as much as was asked for.
    Full,
}

pub struct Pty {
    pub name: String,
    pub pid: i32,
    pub exit: Option<ExitStatus>,
    /// Printed and not yet taken.
    pub buffer: Vec<u8>,
    /// Bytes that were dropped from the front of the buffer since the last take.
    pub dropped: u64,
    ends: Ends,
    inspector: Inspector,
    typed: Vec<u8>,
    /// The terminal was hung up by a program: nothing can be read any more.
    hung_up: bool,
}

impl Pty {
    pub fn new(name: String, pid: i32, ends: Ends) -> Self {
        Self {
            name,
            pid,
            exit: None,
            buffer: Vec::new(),
            dropped: 0,
            ends,
            inspector: Inspector::default(),
            typed: Vec::new(),
            hung_up: false,
        }
    }

    pub fn master(&self) -> RawFd {
        self.ends.master.as_raw_fd()
    }

    pub fn resize(&self, window: Window) -> Result<()> {
        set_window(&self.ends.master, window)
    }

    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    pub fn has_unwritten(&self) -> bool {
        !self.typed.is_empty()
    }

    /// Typed bytes that the terminal has not taken.
    pub fn unwritten(&self) -> usize {
        self.typed.len()
    }

    /// Types `data` after what is still unwritten; what the terminal does not take now is written later.
    pub fn type_in(&mut self, data: Vec<u8>) {
        if self.typed.is_empty() {
            self.typed = data;
        } else {
            self.typed.extend_from_slice(&data);
        }
        self.write_typed();
    }

    pub fn write_typed(&mut self) {
        let mut written = 0;
        while written < self.typed.len() {
            match sys::write(self.master(), &self.typed[written..]) {
                Ok(count) => written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                // Nobody will ever read it.
                Err(_) => written = self.typed.len(),
            }
        }
        self.typed.drain(..written);
    }

    /// Reads what was printed, until there is no more or the buffer holds `most` bytes.
    pub fn drain(&mut self, scratch: &mut [u8], most: usize) -> Drained {
        while self.buffer.len() < most {
            match sys::read(self.master(), scratch) {
                Ok(0) | Err(Errno::EAGAIN) => return Drained::Dry,
                Ok(count) => self.buffer.extend_from_slice(&scratch[..count]),
                Err(Errno::EINTR) => {}
                Err(_) => {
                    self.hung_up = true;
                    return Drained::Dry;
                }
            }
        }
        Drained::Full
    }

    /// Reads one piece while nobody waits, and keeps the newest.
    pub fn drain_idle(&mut self, scratch: &mut [u8]) {
        match sys::read(self.master(), scratch) {
            Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(count) => self.buffer.extend_from_slice(&scratch[..count]),
            Err(_) => self.hung_up = true,
        }
        // Cut in large steps: each one moves what is kept.
        if self.buffer.len() > IDLE_BUFFER_BYTES + IDLE_BUFFER_BYTES / 4 {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let excess = self.buffer.len().saturating_sub(IDLE_BUFFER_BYTES);
        self.buffer.drain(..excess);
        self.dropped += excess as u64;
    }

    /// Makes sure that no more than the idle bound is kept, before somebody looks at the buffer.
    pub fn settle_idle(&mut self) {
        if self.buffer.len() > IDLE_BUFFER_BYTES {
            self.trim();
        }
    }

    /// Takes the first `count` bytes of the buffer.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        if count >= self.buffer.len() {
            return std::mem::take(&mut self.buffer);
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// The terminal's foreground process group.
    pub fn foreground(&self) -> Option<i32> {
        let mut group: libc::pid_t = 0;
        // SAFETY: TIOCGPGRP writes one pid_t.
        let result = unsafe { libc::ioctl(self.master(), libc::TIOCGPGRP, &mut group) };
        (result == 0 && group > 0).then_some(group)
    }

    /// Whether the program that was looked at last surely runs on.
    pub fn is_surely_busy(&self) -> bool {
        self.inspector.is_surely_busy()
    }

    /// Whether everything typed is read and the foreground waits for more, with all that it printed in the buffer.
    ///
    /// The order makes it exact. Asking whether input is unread also brings what was just typed through the kernel's
    /// queue; a group that is then seen at rest has printed all it will, so that reading the terminal dry completes the
    /// output. Several threads are looked at one after the other, so they count as at rest together only when a second
    /// look, after the reading, finds that none has run in between.
    pub fn waits_for_input(&mut self, scratch: &mut [u8], most: usize, orphans: impl FnOnce() -> Vec<i32>) -> bool {
        if self.has_unwritten() || self.has_unread_input() {
            return false;
        }
        let Some(foreground) = self.foreground() else {
            return false;
        };
        let orphans = orphans();
        let scene = Scene {
            terminal: &self.ends.path,
            leader: self.pid,
            foreground,
            orphans: &orphans,
        };
        let Some(first) = self.inspector.look(&scene, false) else {
            return false;
        };
        if first.is_single() {
            return self.drain(scratch, most) == Drained::Dry;
        }
        let Some(first) = self.inspector.look(&scene, true) else {
            return false;
        };
        if self.drain(scratch, most) == Drained::Full {
            return false;
        }
        let scene = Scene {
            terminal: &self.ends.path,
            leader: self.pid,
            foreground,
            orphans: &orphans,
        };
        self.inspector.look(&scene, true).is_some_and(|second| second == first) && self.foreground() == Some(foreground)
    }

    /// Whether something typed was not read by a program yet. Waits until the kernel has passed on what is in its queue.
    fn has_unread_input(&mut self) -> bool {
        let mut entry = libc::pollfd {
            fd: self.ends.slave.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry; a timeout of 0 never waits.
        let result = unsafe { libc::poll(&mut entry, 1, 0) };
        if entry.revents & libc::POLLHUP != 0 {
            // A program (login does) has hung up all earlier descriptors of the terminal, also this one.
            if let Ok(slave) = open_peer(&self.ends.master) {
                self.ends.slave = slave;
            }
        }
        result < 0 || entry.revents & libc::POLLIN != 0
    }

    /// Ends the program: its foreground and its own process group are killed, the terminal goes away.
    pub fn kill(&self) {
        if let Some(foreground) = self.foreground() {
            sys::kill_group(foreground);
        }
        if self.exit.is_none() {
            sys::kill_group(self.pid);
        }
    }
}
