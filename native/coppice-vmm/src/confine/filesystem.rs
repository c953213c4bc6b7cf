//! A root directory with nothing in it.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, chroot, pivot_root};

use crate::confine::{Barrier, Missing};

/// Any directory will do that every host has: the mount on it is seen by this process alone.
const STAGING: &str = "/proc";

/// Swaps the root of this process's own mount namespace for an empty one that nobody can write to.
pub fn empty_root() -> Option<Missing> {
    let made = replace_root().map_err(io::Error::from).and_then(|()| check());
    made.err().map(|error| Barrier::EmptyRoot.missing(error))
}

fn replace_root() -> nix::Result<()> {
    let mounted = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = "mode=0555,size=4096,nr_inodes=2";
    mount(Some("none"), STAGING, Some("tmpfs"), flags, Some(options))?;
    chdir(STAGING)?;
    match pivot_root(".", ".") {
        // The old root now lies on top of the new one.
        Ok(()) => umount2(".", MntFlags::MNT_DETACH)?,
        // The old root is the kernel's first one, as in a carrier. It can't be unmounted, only covered.
        Err(Errno::EINVAL) => cover_root(&mounted)?,
        Err(error) => return Err(error),
    }
    chdir("/")
}

/// Covers the root with the file system in the working directory, and takes everything else out of this namespace first.
fn cover_root(mounted: &str) -> nix::Result<()> {
    let targets = mounted.lines().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| *target != "/" && *target != STAGING) {
        // Below one that is already gone.
        let _ = umount2(target, MntFlags::MNT_DETACH);
    }
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    // What the staging place had covered.
    let _ = umount2(STAGING, MntFlags::MNT_DETACH);
    chroot(".")
}

fn check() -> io::Result<()> {
    match fs::read_dir("/")?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other("the new root is not empty")),
    }
}
