//! Collects children that have ended. Nobody else does, so that a pid that is not collected yet is never another
//! process's.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::{Rc, Weak};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::machine::barriers::killed_by;
use crate::machine::process::VmmProcess;

/// Children that ended before anybody had said whose they are.
const MAX_UNCLAIMED: usize = 256;

#[derive(Default)]
pub struct Reaper {
    processes: RefCell<HashMap<i32, Weak<VmmProcess>>>,
    unclaimed: RefCell<VecDeque<(i32, String)>>,
    collected: Notify,
}

impl Reaper {
    /// Says whose a child is that was not collected yet.
    pub fn register(&self, pid: Pid, process: &Rc<VmmProcess>) {
        // An old child of that number is not this one.
        self.take_unclaimed(pid);
        process.set_pid(pid);
        self.processes.borrow_mut().insert(pid.as_raw(), Rc::downgrade(process));
    }

    /// Takes what is known of a child that ended before anybody had said whose it is.
    pub fn take_unclaimed(&self, pid: Pid) -> Option<String> {
        let mut unclaimed = self.unclaimed.borrow_mut();
        let position = unclaimed.iter().position(|(ended, _)| *ended == pid.as_raw())?;
        unclaimed.remove(position).map(|(_, how)| how)
    }

    /// Whether a pid is taken by a VMM that still runs.
    pub fn is_registered(&self, pid: Pid) -> bool {
        self.processes
            .borrow()
            .get(&pid.as_raw())
            .is_some_and(|process| process.strong_count() > 0)
    }

    /// How many children run, or have ended and wait to be collected, of those that somebody has registered.
    pub fn uncollected(&self) -> usize {
        self.processes.borrow().len()
    }

    /// Runs for ever.
    pub async fn run(&self, mut child_signals: Signal) {
        loop {
            self.collect();
            if child_signals.recv().await.is_none() {
                return;
            }
        }
    }

    /// Returns when the daemon has no child left.
    pub async fn no_children(&self) {
        loop {
            let collected = self.collected.notified();
            if !self.collect() {
                return;
            }
            collected.await;
        }
    }

    /// Collects all that have ended. False: there is no child at all.
    fn collect(&self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(status) => self.collected(status),
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn collected(&self, status: WaitStatus) {
        let (pid, how) = match status {
            WaitStatus::Exited(pid, code) => (pid, format!("exited with status {code}")),
            WaitStatus::Signaled(pid, signal, _) => (pid, killed_by(signal)),
            _ => return,
        };
        let owner = self.processes.borrow_mut().remove(&pid.as_raw());
        match owner.and_then(|process| process.upgrade()) {
            Some(process) => process.set_exit(how),
            None => {
                let mut unclaimed = self.unclaimed.borrow_mut();
                if unclaimed.len() == MAX_UNCLAIMED {
                    unclaimed.pop_front();
                }
                unclaimed.push_back((pid.as_raw(), how));
            }
        }
        self.collected.notify_waiters();
    }
}

pub fn child_signals() -> io::Result<Signal> {
    signal(SignalKind::child())
}
