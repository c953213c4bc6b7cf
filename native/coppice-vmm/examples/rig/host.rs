//! The rig as the first process of a host that has nothing else: file systems, modules, and the end.

use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

use crate::vmm::Outcome;

const MOUNTS: [(&str, &str, &str); 4] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("cgroup2", "/sys/fs/cgroup", "favordynmods"),
];

const MODULES: &str = "/modules";

/// As the daemon does it for a carrier.
pub fn set_up() -> Outcome<()> {
    for (kind, target, options) in MOUNTS {
        match mount(Some(kind), target, Some(kind), MsFlags::empty(), Some(options)) {
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(error) => return Err(format!("{target} can't be mounted: {error}").into()),
        }
    }
    fs::write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise")?;
    for line in fs::read_to_string(Path::new(MODULES).join("order"))?.lines() {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        let file = File::open(Path::new(MODULES).join(name))?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(format!("{name} can't be loaded: {error}").into()),
        }
    }
    Ok(())
}

/// Ends the machine.
pub fn power_off() {
    // Returns only where it fails; the kernel then panics, as its first process ends.
    let _ = reboot(RebootMode::RB_POWER_OFF);
}
