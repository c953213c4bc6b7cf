//! Starting VMM processes, and taking in the children that a frozen one makes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getppid};

use crate::errors::{FaultDomain, Spec, Typed};

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("The VMM {path} can't be started: {source}")]
    Start { path: String, source: io::Error },
    #[error("A control socket can't be made: {0}")]
    Socket(#[from] io::Error),
    #[error("The VMM reports a child with pid {pid}, which is not a child of this daemon")]
    NotOurs { pid: u32 },
}

impl Typed for SpawnError {
    fn spec(&self) -> Spec {
        match self {
            SpawnError::Start { .. } => Spec::new("VMM_SPAWN_FAILED", FaultDomain::Host)
                .remedy("Check that the VMM program given to coppiced exists and may be executed."),
            SpawnError::Socket(_) => Spec::new("HOST_FULL", FaultDomain::Host)
                .retryable()
                .remedy("Close sandboxes, or raise the limit on open files (ulimit -n)."),
            SpawnError::NotOurs { .. } => Spec::new("VMM_FAILED", FaultDomain::Host),
        }
    }
}

/// Starts a VMM on its end of a control socket. Must run on the daemon's main thread: the kernel kills the VMM when the
/// thread that started it ends.
pub fn spawn_vmm(program: &Path, control: OwnedFd) -> Result<Pid, SpawnError> {
    let descriptor = control.as_raw_fd();
    let mut command = Command::new(program);
    command
        .arg("--control-fd")
        .arg(descriptor.to_string())
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let parent = Pid::this();
    // SAFETY: the closure runs in the child between fork and exec. It makes three system calls (fcntl, prctl, getppid)
    // through wrappers that neither allocate nor lock, on a descriptor that `control` keeps open in this process, of
    // which the child is a copy.
    unsafe {
        command.pre_exec(move || {
            let borrowed = BorrowedFd::borrow_raw(descriptor);
            fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::empty()))?;
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != parent {
                return Err(io::Error::from(Errno::ESRCH));
            }
            Ok(())
        });
    }
    let child = command.spawn().map_err(|source| SpawnError::Start {
        path: program.display().to_string(),
        source,
    })?;
    // Dropping the handle neither kills nor waits: the reaper collects every child.
    Ok(Pid::from_raw(child.id() as i32))
}

/// Checks that a pid which a VMM names is a child of this daemon, so that no other process is ever signalled.
pub fn own_child(pid: u32) -> Result<Pid, SpawnError> {
    let candidate = i32::try_from(pid).ok().filter(|raw| *raw > 1).map(Pid::from_raw);
    let candidate = candidate.ok_or(SpawnError::NotOurs { pid })?;
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(candidate), flags) {
        Ok(_) => Ok(candidate),
        Err(_) => Err(SpawnError::NotOurs { pid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_child_given_a_foreign_pid_refuses() {
        for pid in [0, 1, std::process::id(), u32::MAX] {
            assert!(matches!(own_child(pid), Err(SpawnError::NotOurs { .. })), "{pid}");
        }
    }
}
