//! Limits on memory where there are no cgroups: the daemon looks, and ends what has taken too much.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::defaults::MEMORY_LOOK_INTERVAL;
use crate::extents::Extents;
use crate::machine::process::{Ending, VmmProcess};
use crate::usage::process_usage;

/// Looks until the process is gone or has no limit any more. Between two looks a guest can take more than it may: the host's
/// own reserve has to hold it.
pub fn watch(process: &Rc<VmmProcess>, extents: Arc<Extents>) {
    let process = Rc::downgrade(process);
    tokio::task::spawn_local(async move {
        while is_within(&process, &extents).await {
            tokio::time::sleep(MEMORY_LOOK_INTERVAL).await;
        }
        if let Some(process) = process.upgrade() {
            process.held.is_watched.set(false);
        }
    });
}

async fn is_within(process: &Weak<VmmProcess>, extents: &Arc<Extents>) -> bool {
    let look = || {
        let process = process.upgrade()?;
        Some((process.living_pid()?.as_raw(), process.held.memory_bytes.get()?))
    };
    let Some((pid, limit)) = look() else {
        return false;
    };
    let extents = Arc::clone(extents);
    let usage = tokio::task::spawn_blocking(move || process_usage(pid, &extents)).await;
    // What can't be looked at is about to end, or is looked at again.
    let Ok(Ok(usage)) = usage else { return true };
    match process.upgrade().filter(|_| usage.private_bytes > limit) {
        Some(process) => {
            process.set_ending(Ending::over_memory());
            process.kill();
            false
        }
        None => true,
    }
}
