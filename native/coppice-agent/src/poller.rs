//! What the event loop waits for: descriptors (epoll) and points in time.

use std::collections::BTreeSet;
use std::os::fd::{OwnedFd, RawFd};

use crate::slab::Slot;
use crate::sys;

/// Names what an event or a timer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Port,
    Signals,
    /// Try the port again: the host was not there.
    PortRetry,
    ExecStdout(Slot),
    ExecStderr(Slot),
    ExecStdin(Slot),
    ExecTimer(Slot),
    /// Output pipe that a program left to its children.
    Leftover(Slot),
    Pty(Slot),
    /// The time limit of a waiting `pty.send`.
    PtyLimit(Slot),
    /// The next look at a terminal that is waited for.
    PtyLook(Slot),
}

const KIND_SHIFT: u32 = 56;

impl Token {
    fn pack(self) -> u64 {
        let (kind, key) = match self {
            Self::Port => (0, 0),
            Self::Signals => (1, 0),
            Self::PortRetry => (2, 0),
            Self::ExecStdout(slot) => (3, slot.pack()),
            Self::ExecStderr(slot) => (4, slot.pack()),
            Self::ExecStdin(slot) => (5, slot.pack()),
            Self::ExecTimer(slot) => (6, slot.pack()),
            Self::Leftover(slot) => (7, slot.pack()),
            Self::Pty(slot) => (8, slot.pack()),
            Self::PtyLimit(slot) => (9, slot.pack()),
            Self::PtyLook(slot) => (10, slot.pack()),
        };
        (kind << KIND_SHIFT) | key
    }

    fn unpack(packed: u64) -> Self {
        let slot = Slot::unpack(packed & ((1 << KIND_SHIFT) - 1));
        match packed >> KIND_SHIFT {
            0 => Self::Port,
            1 => Self::Signals,
            2 => Self::PortRetry,
            3 => Self::ExecStdout(slot),
            4 => Self::ExecStderr(slot),
            5 => Self::ExecStdin(slot),
            6 => Self::ExecTimer(slot),
            7 => Self::Leftover(slot),
            8 => Self::Pty(slot),
            9 => Self::PtyLimit(slot),
            _ => Self::PtyLook(slot),
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    pub token: Token,
    /// epoll's bits; 0 for a timer.
    pub events: u32,
}

/// Most events taken in one turn.
const EVENTS_A_TURN: usize = 64;

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    timers: BTreeSet<(u64, u64)>,
}

impl Poller {
    pub fn new() -> sys::Result<Self> {
        Ok(Self {
            epoll: sys::epoll_create()?,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_A_TURN],
            timers: BTreeSet::new(),
        })
    }

    pub fn add(&self, fd: RawFd, events: u32, token: Token) -> sys::Result<()> {
        sys::epoll_ctl(&self.epoll, libc::EPOLL_CTL_ADD, fd, events, token.pack())
    }

    pub fn change(&self, fd: RawFd, events: u32, token: Token) -> sys::Result<()> {
        sys::epoll_ctl(&self.epoll, libc::EPOLL_CTL_MOD, fd, events, token.pack())
    }

    pub fn remove(&self, fd: RawFd) -> sys::Result<()> {
        sys::epoll_ctl(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Starts a timer at a monotonic time. Several of one token may run at once.
    pub fn start_timer(&mut self, at_ns: u64, token: Token) {
        self.timers.insert((at_ns, token.pack()));
    }

    pub fn stop_timer(&mut self, at_ns: u64, token: Token) {
        self.timers.remove(&(at_ns, token.pack()));
    }

    /// Waits for what comes first and puts it into `ready`; `wait` false only looks.
    pub fn wait(&mut self, wait: bool, ready: &mut Vec<Ready>) -> sys::Result<()> {
        ready.clear();
        let timeout_ns = match (wait, self.timers.first()) {
            (false, _) => Some(0),
            (true, Some((at_ns, _))) => Some(at_ns.saturating_sub(sys::monotonic_ns())),
            (true, None) => None,
        };
        for event in sys::epoll_wait(&self.epoll, &mut self.events, timeout_ns)? {
            ready.push(Ready {
                token: Token::unpack(event.u64),
                events: event.events,
            });
        }
        if self.timers.is_empty() {
            return Ok(());
        }
        let now_ns = sys::monotonic_ns();
        while let Some(&(at_ns, packed)) = self.timers.first() {
            if at_ns > now_ns {
                break;
            }
            self.timers.pop_first();
            ready.push(Ready {
                token: Token::unpack(packed),
                events: 0,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn token_packed_and_unpacked_is_the_same() {
        let mut slab = Slab::default();
        slab.insert(0);
        let slot = slab.insert(1);
        let tokens = [
            Token::Port,
            Token::Signals,
            Token::PortRetry,
            Token::ExecStdout(slot),
            Token::ExecStderr(slot),
            Token::ExecStdin(slot),
            Token::ExecTimer(slot),
            Token::Leftover(slot),
            Token::Pty(slot),
            Token::PtyLimit(slot),
            Token::PtyLook(slot),
        ];
        for token in tokens {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }

    #[test]
    fn poller_given_two_due_timers_reports_the_earlier_first() {
        let mut poller = Poller::new().unwrap();
        poller.start_timer(2, Token::PortRetry);
        poller.start_timer(1, Token::Signals);
        let mut ready = Vec::new();
        poller.wait(true, &mut ready).unwrap();
        let tokens: Vec<Token> = ready.iter().map(|one| one.token).collect();
        assert_eq!(tokens, [Token::Signals, Token::PortRetry]);
    }
}
