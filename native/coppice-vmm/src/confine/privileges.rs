//! No capabilities, no way to any, and a user whom nothing belongs to.

use std::io;

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

use crate::confine::{Barrier, Missing};

/// First of the ids that VMMs use: above those that systemd gives to containers and to services.
pub const FIRST_ID: u32 = 0x7000_0000;
const ID_MASK: u32 = 0x07ff_ffff;

/// Version 3 of the kernel's structures: 64 bits in two halves.
pub const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
pub struct CapabilityHeader {
    pub version: u32,
    pub pid: i32,
}

#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CapabilitySet {
    pub effective: u32,
    pub permitted: u32,
    pub inheritable: u32,
}

/// Takes from this process what an `execve` could give it. Who has no right to do so has nothing to take.
pub fn drop_bounding_set() -> io::Result<()> {
    for capability in 0u64.. {
        // SAFETY: takes integers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0u64, 0u64, 0u64) } == 0 {
            continue;
        }
        return match io::Error::last_os_error().raw_os_error() {
            // One past the last that this kernel knows.
            Some(libc::EINVAL) => Ok(()),
            // Without CAP_SETPCAP: no new privileges, which is required, makes the set meaningless.
            Some(libc::EPERM) => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
    }
    Ok(())
}

/// Takes a user and a group that no other family of VMMs has, so that none may signal or look at another one, and that
/// no file belongs to. `None`: done.
pub fn become_nobody_else() -> Option<Missing> {
    if !geteuid().is_root() {
        return Some(Barrier::OwnUser.missing("the daemon does not run as root"));
    }
    // Nothing but chance keeps two families apart, which it does: it has 2^27 ids to choose from.
    let mut random = [0u8; 4];
    // SAFETY: writes at most the four bytes of `random`.
    let read = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if read != random.len() as isize {
        return Some(Barrier::OwnUser.missing("no randomness"));
    }
    let id = FIRST_ID | (u32::from_ne_bytes(random) & ID_MASK);
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    let changed = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    changed.err().map(|error| Barrier::OwnUser.missing(error))
}

/// Empties the ambient, inheritable, permitted and effective sets.
pub fn drop_capabilities() -> io::Result<()> {
    const CLEAR_ALL: u64 = libc::PR_CAP_AMBIENT_CLEAR_ALL as u64;
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, CLEAR_ALL, 0u64, 0u64, 0u64) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let header = CapabilityHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let none = [CapabilitySet::default(); 2];
    // SAFETY: the structures have the kernel's layout for this version, which reads them and writes nothing.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(prctl::set_no_new_privs()?)
}

/// Closes this process's memory to everybody who has no capability to trace it, its forked siblings among them.
pub fn close_memory(own_user: bool) -> Option<Missing> {
    if !own_user {
        // The daemon could not read how much memory its VMMs take.
        return Some(Barrier::NotDumpable.missing("the VMM has the daemon's user"));
    }
    let closed = prctl::set_dumpable(false);
    closed.err().map(|error| Barrier::NotDumpable.missing(error))
}
