//! The file systems that an init has to mount.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

#[derive(Debug, thiserror::Error)]
#[error("{target} can't be mounted: {source}")]
pub struct MountError {
    target: String,
    source: io::Error,
}

struct Mount {
    kind: &'static str,
    target: &'static str,
    flags: MsFlags,
    options: &'static str,
}

const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Where the contents of guests' disks go. Half of the memory may be in there, which is a tmpfs's default.
pub const EXTENTS: &str = "/extents";

pub const CGROUPS: &str = "/sys/fs/cgroup";

const MOUNTS: [Mount; 7] = [
    Mount {
        kind: "proc",
        target: "/proc",
        flags: QUIET,
        options: "",
    },
    Mount {
        kind: "sysfs",
        target: "/sys",
        flags: QUIET,
        options: "",
    },
    Mount {
        kind: "devtmpfs",
        target: "/dev",
        flags: MsFlags::MS_NOSUID,
        options: "mode=0755",
    },
    Mount {
        kind: "tmpfs",
        target: "/run",
        flags: QUIET,
        options: "mode=0700",
    },
    Mount {
        kind: "tmpfs",
        target: "/tmp",
        flags: QUIET,
        options: "mode=1777",
    },
    Mount {
        kind: "tmpfs",
        target: EXTENTS,
        flags: QUIET,
        options: "mode=0700",
    },
    // Without favordynmods making a VM takes 10 ms instead of 1: KVM starts a thread that changes its cgroup.
    Mount {
        kind: "cgroup2",
        target: CGROUPS,
        flags: QUIET,
        options: "favordynmods",
    },
];

pub fn mount_all() -> Result<(), MountError> {
    for Mount {
        kind,
        target,
        flags,
        options,
    } in MOUNTS
    {
        // Only for those that are directories of the initramfs; below /sys they exist.
        let _ = fs::create_dir(target);
        match mount(Some(kind), target, Some(kind), flags, Some(options)) {
            Ok(()) => {}
            // The kernel mounts /dev itself where it is told to.
            Err(nix::errno::Errno::EBUSY) => {}
            Err(error) => {
                return Err(MountError {
                    target: target.to_owned(),
                    source: error.into(),
                });
            }
        }
    }
    Ok(())
}

/// The kernel gives init no console where the initramfs has no node for it.
pub fn use_console() {
    let console = fs::File::options().read(true).write(true).open("/dev/console");
    if let Ok(console) = console {
        let descriptor = console.as_fd();
        let _ = dup2_stdin(descriptor);
        let _ = dup2_stdout(descriptor);
        let _ = dup2_stderr(descriptor);
    }
}

/// A read-only erofs disk.
pub fn mount_erofs(disk: &Path, target: &str) -> Result<(), MountError> {
    let failed = |source| MountError {
        target: target.to_owned(),
        source,
    };
    fs::create_dir_all(target).map_err(failed)?;
    let flags = QUIET | MsFlags::MS_RDONLY;
    mount(Some(disk), target, Some("erofs"), flags, None::<&str>).map_err(|error| failed(error.into()))
}
