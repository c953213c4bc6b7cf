//! The fork itself.

use std::io;

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// Who returns from a fork.
pub enum Side {
    Parent { child: u32 },
    Child,
}

/// Forks this process, of which the child has only this thread. The child's parent is this process's parent, the daemon: it
/// can wait for every VMM, whoever forked it.
pub fn fork_sibling() -> io::Result<Side> {
    // The arguments have all 64 bits: the system call filter compares them.
    let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as usize;
    // SAFETY: without CLONE_VM the child gets a copy of everything, and goes on on its own copy of this stack. No lock is
    // held by somebody who does not exist in the child: the threads of vCPUs take none, see `secondaries`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) };
    match pid {
        0 => Ok(Side::Child),
        pid if pid > 0 => Ok(Side::Parent { child: pid as u32 }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel kill this process when the thread that is its parent ends. A fork does not inherit it.
pub fn die_with_parent() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}
