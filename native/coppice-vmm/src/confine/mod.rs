//! What a VMM gives up before its guest runs for the first time. `docs/security.md` says which barrier keeps what out.
//!
//! It happens once, in the process that boots a guest, when everything that a VMM ever opens is open and before there is
//! a VM. Everything forked from that process inherits all of it, so that a fork pays nothing for it.
//!
//! Some barriers are always there or there is no guest: the system call filter, no new privileges, no capabilities, no
//! other descriptors, the limits. The others need rights or a kernel that not every host has: what is missing is
//! reported, and the daemon warns of it.

use std::io;
use std::os::fd::BorrowedFd;

use coppice_wire::vmm::MissingBarrier;

use crate::fork;

mod descriptors;
mod filesystem;
mod landlock;
mod limits;
mod namespaces;
mod privileges;
mod seccomp;
mod syscalls;

#[cfg(test)]
mod barrier_drill;
#[cfg(test)]
pub mod drill;
#[cfg(test)]
mod filter_drill;

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("Confinement failed: {step}: {source}")]
    Step { step: &'static str, source: io::Error },
    #[error("Confinement failed: the system call filter can't be made: {0}")]
    Filter(#[from] seccompiler::Error),
}

/// Names the step that a system call belonged to.
fn step(step: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError::Step { step, source }
}

/// A barrier that this host does not allow.
#[derive(Debug)]
pub struct Missing {
    pub barrier: Barrier,
    pub reason: String,
}

/// The barriers that a VMM can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    EmptyRoot,
    OwnNetwork,
    OwnIpc,
    OwnHostname,
    OwnUser,
    NotDumpable,
    Landlock,
}

impl Barrier {
    fn name(self) -> &'static str {
        match self {
            Self::EmptyRoot => "empty root directory",
            Self::OwnNetwork => "network namespace",
            Self::OwnIpc => "IPC namespace",
            Self::OwnHostname => "UTS namespace",
            Self::OwnUser => "user of its own",
            Self::NotDumpable => "memory closed to other processes",
            Self::Landlock => "Landlock",
        }
    }

    fn missing(self, reason: impl ToString) -> Missing {
        Missing {
            barrier: self,
            reason: reason.to_string(),
        }
    }
}

impl From<&Missing> for MissingBarrier {
    fn from(missing: &Missing) -> Self {
        Self {
            barrier: missing.barrier.name().to_owned(),
            reason: missing.reason.clone(),
        }
    }
}

pub use limits::file_size as bound_file_size;

/// Whether a VMM will make threads, for which it needs system calls that it has no other use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    None,
    ForVcpus,
}

impl Threads {
    pub fn of(vcpus: u8) -> Self {
        if vcpus > 1 { Self::ForVcpus } else { Self::None }
    }
}

/// Confines this process, which must have one thread, for good. Beside the standard streams only the descriptors in
/// `kept` stay open. Returns what this host does not allow; an error leaves the process confined in part.
pub fn confine(kept: &[BorrowedFd<'_>], threads: Threads) -> Result<Vec<Missing>, ConfineError> {
    let mut missing = before_the_filter(kept)?;
    missing.extend(landlock::restrict());
    seccomp::install(threads)?;
    Ok(missing)
}

/// The barriers that hold without filter and Landlock, in the order that the rights for them allow.
fn before_the_filter(kept: &[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError> {
    descriptors::close_others(kept).map_err(step("closing other descriptors"))?;
    let mut missing = namespaces::enter();
    if missing.iter().all(|missing| missing.barrier != Barrier::EmptyRoot) {
        missing.extend(filesystem::empty_root());
    }
    privileges::drop_bounding_set().map_err(step("emptying the bounding set"))?;
    let user = privileges::become_nobody_else();
    limits::apply(user.is_none()).map_err(step("setting limits"))?;
    privileges::drop_capabilities().map_err(step("dropping capabilities"))?;
    privileges::forbid_new_privileges().map_err(step("forbidding new privileges"))?;
    missing.extend(privileges::close_memory(user.is_none()));
    missing.extend(user);
    // A change of user has undone it.
    fork::die_with_parent().map_err(step("binding to the parent"))?;
    Ok(missing)
}
