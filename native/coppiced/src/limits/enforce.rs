//! Holds sandboxes to their limits.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;

use crate::extents::Extents;
use crate::limits::cgroup::{CgroupError, Cgroups, Group, own_directory};
use crate::limits::memory_watch::watch;
use crate::limits::share::nice_of;
use crate::limits::{LimitError, Limits};
use crate::machine::priority::{Urgency, may_raise_priority};
use crate::machine::process::VmmProcess;

/// Where the daemon may make cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupChoice {
    /// Where it is, if it is alone there.
    Auto,
    None,
    /// In a directory that was delegated to it.
    Delegated(PathBuf),
    /// At the root of a machine of its own.
    Root(PathBuf),
}

/// What a process is held to, and by what.
#[derive(Default)]
pub struct Held {
    group: RefCell<Option<Group>>,
    /// Memory that the daemon itself keeps an eye on.
    pub memory_bytes: Cell<Option<u64>>,
    pub is_watched: Cell<bool>,
}

/// By what each limit is held: `none` where it can't be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Means {
    pub memory: &'static str,
    pub cpu_share: &'static str,
    pub cpu_max: &'static str,
    /// Why there are no cgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

pub struct Enforcement {
    /// Or why there are none.
    cgroups: Result<Cgroups, String>,
    extents: Arc<Extents>,
}

impl Enforcement {
    pub fn new(choice: &CgroupChoice, extents: Arc<Extents>) -> Self {
        let cgroups = match choice {
            CgroupChoice::Auto => auto(),
            CgroupChoice::None => Err("the daemon was told to do without cgroups".to_owned()),
            CgroupChoice::Delegated(directory) => Cgroups::in_delegated(directory).map_err(in_words),
            CgroupChoice::Root(mount) => Cgroups::in_root(mount).map_err(in_words),
        };
        if let Err(reason) = &cgroups {
            tracing::info!(reason, "Limits are held without cgroups");
        }
        Enforcement { cgroups, extents }
    }

    pub fn means(&self) -> Means {
        match &self.cgroups {
            Ok(_) => Means {
                memory: "cgroup2",
                cpu_share: "cgroup2",
                cpu_max: "cgroup2",
                reason: None,
            },
            Err(reason) => Means {
                memory: "measured",
                cpu_share: if may_raise_priority() { "nice" } else { "none" },
                cpu_max: "none",
                reason: Some(reason.clone()),
            },
        }
    }

    /// Fails where a limit can't be held.
    pub fn require(&self, limits: &Limits) -> Result<(), LimitError> {
        let Err(reason) = &self.cgroups else { return Ok(()) };
        let unsupported = |field| {
            let reason = format!("it needs a cgroup, and {reason}");
            LimitError::Unsupported { field, reason }
        };
        if limits.cpu_max.is_some() {
            return Err(unsupported("cpuMax"));
        }
        if limits.cpu_share.is_some() && !may_raise_priority() {
            return Err(unsupported("cpuShare"));
        }
        Ok(())
    }

    /// Holds a process to these limits from now on, and to no others.
    pub fn apply(&self, process: &Rc<VmmProcess>, id: &str, limits: &Limits) -> Result<(), LimitError> {
        let applied = match &self.cgroups {
            Ok(_) if limits.is_none() => {
                self.release(process);
                Ok(())
            }
            Ok(cgroups) => apply_group(cgroups, process, id, limits),
            Err(_) => {
                self.apply_without(process, limits);
                Ok(())
            }
        };
        applied.map_err(|error: CgroupError| LimitError::Failed {
            id: id.to_owned(),
            reason: error.to_string(),
        })
    }

    fn apply_without(&self, process: &Rc<VmmProcess>, limits: &Limits) {
        let memory_bytes = limits.memory_mib.map(|mib| u64::from(mib) << 20);
        process.held.memory_bytes.set(memory_bytes);
        if memory_bytes.is_some() && !process.held.is_watched.replace(true) {
            watch(process, Arc::clone(&self.extents));
        }
        let nice = limits.cpu_share.map_or(0, nice_of);
        if process.set_foreground_nice(nice) {
            process.set_urgency(Urgency::Foreground);
        }
    }

    /// A process that is frozen, or that has no limits any more, is held to none.
    pub fn release(&self, process: &VmmProcess) {
        process.held.memory_bytes.set(None);
        process.set_foreground_nice(0);
        let (Ok(cgroups), Some(group)) = (&self.cgroups, process.held.group.take()) else {
            return;
        };
        if let Some(pid) = process.living_pid()
            && let Err(error) = cgroups.release(pid)
        {
            tracing::warn!(%pid, %error, "A process can't leave its cgroup");
        }
        tokio::task::spawn_local(group.remove());
    }

    /// Takes a copy out of the group that it was born into.
    pub fn release_copy(&self, of: &VmmProcess, copy: &VmmProcess) {
        if let (Ok(cgroups), Some(pid), true) = (&self.cgroups, copy.living_pid(), of.held.group.borrow().is_some())
            && let Err(error) = cgroups.release(pid)
        {
            tracing::warn!(%pid, %error, "A copy can't leave its sandbox's cgroup");
        }
    }

    /// The process is gone. Says whether the kernel ended it because it was out of the memory that it may have.
    pub fn ended(&self, process: &VmmProcess) -> bool {
        let Some(group) = process.held.group.take() else {
            return false;
        };
        let was_out_of_memory = group.was_out_of_memory();
        tokio::task::spawn_local(group.remove());
        was_out_of_memory
    }

    /// Cgroups of sandboxes that there are.
    pub fn groups(&self) -> usize {
        self.cgroups.as_ref().map_or(0, Cgroups::count)
    }
}

fn apply_group(cgroups: &Cgroups, process: &VmmProcess, id: &str, limits: &Limits) -> Result<(), CgroupError> {
    // One that is gone is not limited any more; nobody would remove its group.
    let Some(pid) = process.living_pid() else {
        return Ok(());
    };
    let mut held = process.held.group.borrow_mut();
    if let Some(group) = &*held {
        return group.limit(limits);
    }
    let group = held.insert(cgroups.make(id)?);
    group.limit(limits)?;
    group.enter(pid)
}

/// A daemon may only arrange what it has for itself: next to others it would have to move them, too.
fn auto() -> Result<Cgroups, String> {
    let directory = own_directory().map_err(in_words)?;
    match is_alone_in(&directory) {
        true => Cgroups::in_delegated(&directory).map_err(in_words),
        false => Err(format!("other processes are in its cgroup, {}", directory.display())),
    }
}

fn is_alone_in(directory: &Path) -> bool {
    let processes = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    processes.trim() == std::process::id().to_string()
}

fn in_words(error: CgroupError) -> String {
    error.to_string()
}
