//! Which processes the kernel runs first, and which it ends first.

use std::fs;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Pid, geteuid};

use crate::defaults::{BACKGROUND_NICE, CHECKPOINT_OOM_SCORE, SANDBOX_OOM_SCORE};

/// Whether somebody waits for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    Foreground,
    Background,
}

/// What its end would cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// One episode.
    Sandbox,
    /// Everything that is still to be forked from it.
    Checkpoint,
}

/// A priority is a thread's, and a VMM with several vCPUs has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Several,
}

impl Threads {
    pub fn of(vcpus: u8) -> Self {
        if vcpus > 1 { Self::Several } else { Self::One }
    }
}

/// Whether this daemon may give a process back the priority that it took from it.
pub fn may_raise_priority() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    // The limit counts down from nice 20.
    const NICE_0: u64 = 20;
    *MAY.get_or_init(|| geteuid().is_root() || getrlimit(Resource::RLIMIT_NICE).is_ok_and(|(soft, _)| soft >= NICE_0))
}

/// Whom the kernel ends first when memory runs out in spite of all limits: by size alone that would be a template,
/// whose memory all its children share. A daemon that may not say so leaves it to the kernel.
pub fn set_worth(pid: Pid, worth: Worth) {
    let adjustment = match worth {
        Worth::Sandbox => SANDBOX_OOM_SCORE,
        Worth::Checkpoint => CHECKPOINT_OOM_SCORE,
    };
    if let Err(error) = fs::write(format!("/proc/{pid}/oom_score_adj"), adjustment) {
        tracing::debug!(%pid, %error, "The out-of-memory score can't be set");
    }
}

/// Whether somebody waits for what the process does now. A hint to the scheduler, which a daemon that may not raise
/// priorities does without: what it lowered it could not raise again. `pid`: a child that is not collected yet.
/// `foreground_nice`: its priority when somebody waits.
pub fn set_urgency(pid: Pid, urgency: Urgency, threads: Threads, foreground_nice: i32) {
    if !may_raise_priority() {
        return;
    }
    let nice = match urgency {
        Urgency::Foreground => foreground_nice,
        Urgency::Background => BACKGROUND_NICE,
    };
    let set = |thread: u32| {
        // SAFETY: takes no pointers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) };
    };
    // First, because threads that it makes from now on inherit it.
    set(pid.as_raw().unsigned_abs());
    if threads == Threads::Several {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        tasks
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .for_each(set);
    }
}
