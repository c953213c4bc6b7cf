//! Mounts, network, IPC objects and host name of its own.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid, sethostname};

use crate::confine::{Barrier, Missing};

const NAMESPACES: [(CloneFlags, Barrier); 4] = [
    (CloneFlags::CLONE_NEWNS, Barrier::EmptyRoot),
    (CloneFlags::CLONE_NEWNET, Barrier::OwnNetwork),
    (CloneFlags::CLONE_NEWIPC, Barrier::OwnIpc),
    (CloneFlags::CLONE_NEWUTS, Barrier::OwnHostname),
];

/// What a VMM believes its host to be called.
pub const HOSTNAME: &str = "coppice";

/// Enters new namespaces; what was not possible.
pub fn enter() -> Vec<Missing> {
    let all = NAMESPACES
        .iter()
        .fold(CloneFlags::empty(), |all, (flag, _)| all | *flag);
    let missing = match unshare(all) {
        Ok(()) => Vec::new(),
        Err(Errno::EPERM) if enter_as_user(all).is_ok() => Vec::new(),
        Err(_) => NAMESPACES
            .iter()
            .filter_map(|(flag, barrier)| Some(barrier.missing(unshare(*flag).err()?)))
            .collect(),
    };
    if missing.iter().all(|missing| missing.barrier != Barrier::OwnHostname) {
        // The name says nothing that has to be kept from the VMM; not to have it is tidier.
        let _ = sethostname(HOSTNAME);
    }
    missing
}

/// Who is not root may make namespaces inside of a user namespace, where the kernel's settings allow that.
fn enter_as_user(namespaces: CloneFlags) -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(namespaces | CloneFlags::CLONE_NEWUSER)?;
    // The VMM keeps the daemon's ids, inside as outside: there is no other that this host would let it have. Mounts
    // work without this map on most kernels, so that a failure shows there or does no harm.
    let _ = fs::write("/proc/self/setgroups", "deny");
    let _ = fs::write("/proc/self/uid_map", format!("{user} {user} 1"));
    let _ = fs::write("/proc/self/gid_map", format!("{group} {group} 1"));
    Ok(())
}
