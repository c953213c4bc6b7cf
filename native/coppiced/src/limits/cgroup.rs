//! Control groups of version 2: one for each running sandbox that has limits, and none for those that have not.
//!
//! A group costs its sandbox: making it, moving the process, and a little at each page fault and each turn on the processor.
//! So it is paid for by those who asked for limits, and after their fork was answered. A process that is frozen leaves its
//! group, which is removed: what is forked from it is not born into another's limits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Pid;

use crate::defaults::VMM_TASKS;
use crate::limits::Limits;

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

const PERIOD_US: f64 = 100_000.0;

/// A group is busy until the last of what was in it is gone, a moment after it was collected.
const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// Directories of daemons, next to each other in the one that was given to them.
const DAEMON_PREFIX: &str = "coppice-";
const SANDBOX_PREFIX: &str = "sandbox-";

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup2 is mounted, or none that this process is in")]
    NotMounted,
    #[error("{directory} has no {controller} controller to give")]
    NoController {
        directory: PathBuf,
        controller: &'static str,
    },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// The directory in which this daemon makes its groups.
pub struct Cgroups {
    /// Of the groups of sandboxes.
    directory: PathBuf,
    /// Where processes are that have no limits.
    home: PathBuf,
}

impl Cgroups {
    /// In a machine of the daemon's own, at the root of its hierarchy, in which processes without limits stay.
    pub fn in_root(mount: &Path) -> Result<Self, CgroupError> {
        require_controllers(mount)?;
        enable(mount)?;
        Ok(Cgroups {
            directory: mount.to_owned(),
            home: mount.to_owned(),
        })
    }

    /// In a directory that was delegated to this daemon: nothing else may run in it but what runs in the daemon's own group.
    /// Removes what daemons have left there that are no more.
    pub fn in_delegated(given: &Path) -> Result<Self, CgroupError> {
        require_controllers(given)?;
        remove_left(given);
        let directory = given.join(format!("{DAEMON_PREFIX}{}", std::process::id()));
        let home = directory.join("daemon");
        let made = || {
            make(&directory)?;
            make(&home)?;
            // A directory that gives controllers to others may hold no process itself.
            enter(&home, Pid::this())?;
            enable(given)?;
            enable(&directory)
        };
        made().inspect_err(|_| {
            // Back to where it was, which it may not have left.
            let _ = enter(given, Pid::this());
            let _ = fs::remove_dir(&home);
            let _ = fs::remove_dir(&directory);
        })?;
        Ok(Cgroups { directory, home })
    }

    /// A new group for a sandbox, empty.
    pub fn make(&self, sandbox: &str) -> Result<Group, CgroupError> {
        let path = self.directory.join(format!("{SANDBOX_PREFIX}{sandbox}"));
        make(&path)?;
        let group = Group { path };
        let settings = [
            ("memory.oom.group", "1".to_owned()),
            ("pids.max", VMM_TASKS.to_string()),
        ];
        let set = settings.iter().try_for_each(|(file, value)| group.set(file, value));
        set.inspect_err(|_| drop(fs::remove_dir(&group.path)))?;
        Ok(group)
    }

    /// Moves a process to those that have no limits.
    pub fn release(&self, pid: Pid) -> Result<(), CgroupError> {
        enter(&self.home, pid)
    }

    /// How many groups of sandboxes there are, as the kernel knows it.
    pub fn count(&self) -> usize {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(SANDBOX_PREFIX)).count()
    }
}

/// Of one sandbox.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    pub fn enter(&self, pid: Pid) -> Result<(), CgroupError> {
        enter(&self.path, pid)
    }

    pub fn limit(&self, limits: &Limits) -> Result<(), CgroupError> {
        let memory = limits
            .memory_mib
            .map_or("max".to_owned(), |mib| (u64::from(mib) << 20).to_string());
        let cpu = limits
            .cpu_max
            .map_or("max".to_owned(), |cpus| format!("{}", (cpus * PERIOD_US).round()));
        self.set("memory.max", &memory)?;
        self.set("cpu.weight", &limits.cpu_share.unwrap_or(100).to_string())?;
        self.set("cpu.max", &format!("{cpu} {PERIOD_US}"))?;
        // Swapped out it would only be slow for longer. A kernel without swap has no such file.
        let _ = self.set("memory.swap.max", "0");
        Ok(())
    }

    /// Whether the kernel has ended a process because the group was out of memory.
    pub fn was_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0) > 0
    }

    /// Removes it when its last process is gone.
    pub async fn remove(self) {
        for _ in 0..REMOVE_ATTEMPTS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => return tracing::warn!(path = %self.path.display(), %error, "A cgroup can't be removed"),
            }
            tokio::time::sleep(REMOVE_PAUSE).await;
        }
        tracing::warn!(path = %self.path.display(), "A cgroup stays: something is still in it");
    }

    fn set(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        write(&self.path.join(file), value)
    }
}

/// The cgroup2 directory that this process is in.
pub fn own_directory() -> Result<PathBuf, CgroupError> {
    let read = |path: &str| fs::read_to_string(path).map_err(|_| CgroupError::NotMounted);
    let (mounts, groups) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
    find_directory(&mounts, &groups).ok_or(CgroupError::NotMounted)
}

fn find_directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let target = fields.next()?;
        (fields.next()? == "cgroup2").then_some(target)
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(group.trim_start_matches('/')))
}

fn require_controllers(directory: &Path) -> Result<(), CgroupError> {
    let path = directory.join("cgroup.controllers");
    let there = fs::read_to_string(&path).map_err(|source| CgroupError::Io { path, source })?;
    let missing = CONTROLLERS
        .iter()
        .find(|wanted| !there.split_whitespace().any(|name| name == **wanted));
    match missing {
        Some(controller) => Err(CgroupError::NoController {
            directory: directory.to_owned(),
            controller,
        }),
        None => Ok(()),
    }
}

fn enable(directory: &Path) -> Result<(), CgroupError> {
    let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    write(&directory.join("cgroup.subtree_control"), &wanted)
}

/// Groups of daemons in which nothing runs any more, not even the daemon. What can't be removed is somebody else's.
fn remove_left(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_daemons = entry.file_name().to_string_lossy().starts_with(DAEMON_PREFIX);
        let events = fs::read_to_string(entry.path().join("cgroup.events")).unwrap_or_default();
        if is_daemons && events.lines().any(|line| line == "populated 0") {
            for group in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(group.path());
            }
            if fs::remove_dir(entry.path()).is_ok() {
                tracing::info!(path = %entry.path().display(), "Removed what a daemon had left");
            }
        }
    }
}

fn make(path: &Path) -> Result<(), CgroupError> {
    fs::create_dir(path).map_err(|source| CgroupError::Io {
        path: path.to_owned(),
        source,
    })
}

fn enter(directory: &Path, pid: Pid) -> Result<(), CgroupError> {
    write(&directory.join("cgroup.procs"), &pid.to_string())
}

/// Never makes a file: where there is none the kernel has no such setting.
fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let file = fs::File::options().write(true).open(path);
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    written.map_err(|source| CgroupError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_this_process_is_found_beside_older_hierarchies() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let groups = "4:memory:/a\n0::/user.slice/coppice.service\n";
        let found = find_directory(mounts, groups).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/user.slice/coppice.service"));
        assert_eq!(find_directory("", groups), None);
        assert_eq!(find_directory(mounts, "4:memory:/a\n"), None);
    }

    #[test]
    fn directory_without_controllers_is_refused_and_named() {
        let directory = std::env::temp_dir().join(format!("coppiced-cgroup-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let refused = |expected: &str| {
            let error = Cgroups::in_delegated(&directory).map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("cgroup.controllers");
        fs::write(directory.join("cgroup.controllers"), "cpuset cpu pids\n").unwrap();
        refused("no memory controller");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
