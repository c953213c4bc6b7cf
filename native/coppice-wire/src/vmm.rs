//! Messages on the control socket between the daemon and one VMM process.
//!
//! The socket is a Unix stream socket. A message that hands over descriptors (`Boot`, `Fork`, `Checkpoint`, `Lend`,
//! `Extent`, `SaveWhole`, `LoadWhole`) carries them as `SCM_RIGHTS`, the first on the first byte of its frame, each further one on a later byte. The daemon is the only peer; when the socket ends, the VMM exits at once.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Durations of an operation's stages in the order they ran: `(name, microseconds)`.
pub type Stages = Vec<(String, u64)>;

/// Host time: nanoseconds of its wall clock since the epoch, on which daemon and VMM agree.
pub fn host_time_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// Most vCPUs of a guest.
pub const MAX_VCPUS: u8 = 4;

/// What a new VMM process boots.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootConfig {
    /// Uncompressed kernel (`vmlinux` ELF).
    pub kernel: String,
    /// initramfs with the agent as `/init`.
    pub initrd: String,
    /// Root file system: an erofs file or block device, opened read-only.
    pub image: String,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u32,
    pub vcpus: u8,
    /// Whether the guest gets a writable disk. The file of its first contents, open for reading, then comes with `Boot`:
    /// see `blank`.
    #[serde(default)]
    pub disk: bool,
    /// What the disk leaves available of the file system that its extents lie in: below it the guest's writes fail.
    #[serde(default)]
    pub disk_reserve_bytes: u64,
    /// What of the guest's serial console is passed on in a second.
    #[serde(default = "default_console_rate")]
    pub console_bytes_per_second: u32,
    /// Appended to the VMM's own kernel command line.
    pub extra_cmdline: String,
}

fn default_console_rate() -> u32 {
    64 * 1024
}

/// Daemon → VMM.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Command {
    /// First message to a fresh process. Answer: `Started`.
    Boot { config: BootConfig },
    /// One agent payload (no length prefix) for the guest.
    Agent {
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Stop the vCPUs and keep the VM (a pooled child that waits). Answer: `Paused`; `Busy`, and it runs on, where
    /// `when_idle` is asked for and the guest has something to do.
    Pause { when_idle: bool },
    /// Run again after `Pause`. With `at_ns` the guest's clocks go on from where they stopped as of that host time: who
    /// sends this can tell the guest by how much it is behind. Without, they have run on: to the guest nothing happened
    /// but that it was slow. Answer: `Resumed`.
    Resume { at_ns: Option<u64> },
    /// Save all state and become a frozen checkpoint; the VM is taken apart a moment later. Answer: `Parked`.
    Park,
    /// Only when frozen: make a child that runs, its clocks going on as of host time `at_ns`. The new control socket
    /// comes with this message; the child answers `Started` on it, the frozen process answers `Forked` here.
    /// `rewindable`: it notes what it writes, so that it can be rewound.
    Fork {
        tag: u64,
        at_ns: u64,
        #[serde(default)]
        rewindable: bool,
    },
    /// Only when running, of a child that is rewindable: back to the state that it was forked with, in the VM that it has,
    /// its clocks going on as of host time `at_ns`. Needs `OriginMemory`, for this once. Answer: `Rewound`.
    Rewind { at_ns: u64 },
    /// Only when frozen: in which pages and blocks it differs from the frozen process that the life before it began from.
    /// Needs `Pagemap`, `OriginMemory` and `OriginPagemap`, for this once. Answer: `Compared`.
    Compare,
    /// Only when running: copy the machine as it is in this moment into a frozen process of its own, and go on. The copy's
    /// control socket comes with this message; the copy says `Parked` on it, this process answers `Checkpointed` here.
    Checkpoint { tag: u64 },
    /// Lends the VMM, which can't open anything, a file of its own in `/proc`, until it is frozen: the descriptor comes
    /// with this message. `Park` and `Checkpoint` need `Statm`; `Pagemap` is for `Pause`, `Park` and `Close` of a child that
    /// learns. No answer.
    Lend { file: LentFile },
    /// Answers `ExtentWanted`. Where it is `granted` two descriptors of one empty file come along: the first for reading and
    /// writing, the second for reading. Otherwise what waits for it fails in the guest. No answer.
    Extent { granted: bool },
    /// The benchmark's baseline, only when frozen, of a machine without a disk: write all memory and state into the file
    /// that comes with this message. Answer: `SavedWhole`.
    SaveWhole,
    /// The benchmark's baseline, first message to a fresh process: become the machine in the file that comes with this
    /// message, and run, clocks going on as of host time `at_ns`. Answer: `Started`.
    LoadWhole { whole: WholeConfig, at_ns: u64 },
    /// Exit with status 0. No answer.
    Close,
}

/// How a machine gets out of the file that `SaveWhole` has written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WholeConfig {
    /// As in `BootConfig`.
    pub image: String,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u32,
    /// Map the memory's file, instead of reading all of it before the machine runs.
    pub mapped: bool,
}

/// `/proc/PID/…` of the VMM that it is lent to; `Origin…`: of the frozen VMM that it was forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LentFile {
    Statm,
    Pagemap,
    OriginMemory,
    OriginPagemap,
}

/// A barrier around a VMM that its host does not allow, see `docs/security.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingBarrier {
    pub barrier: String,
    pub reason: String,
}

/// VMM → daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// The vCPUs run. `pid` as the VMM sees itself. `learns`: its page map is of use to its template when it is stopped
    /// or ends. `missing`: barriers that a booted VMM, and so everything forked from it, does without.
    Started {
        pid: u32,
        stages: Stages,
        learns: bool,
        missing: Vec<MissingBarrier>,
    },
    /// One agent payload (no length prefix) from the guest.
    Agent {
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Bytes of the guest's serial console. `dropped`: how many more it said before them, above its rate.
    Console {
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        #[serde(default)]
        dropped: u64,
    },
    /// `at_ns`: host time at which the guest's clocks stopped.
    Paused {
        at_ns: u64,
        stages: Stages,
    },
    /// The guest has something to do and was not stopped.
    Busy,
    Resumed {
        stages: Stages,
    },
    /// The guest writes to its disk for the first time in this life and waits until `Extent` comes. Once a life, unless it
    /// was not granted.
    ExtentWanted,
    /// `at_ns`: host time at which the guest's clocks stopped. `dirty_pages`: 4 KiB guest pages that differ from the base
    /// (private pages). `dirty_blocks`: 4 KiB blocks of the disk that were written since the base was made and hold data.
    Parked {
        at_ns: u64,
        dirty_pages: u64,
        #[serde(default)]
        dirty_blocks: u64,
        stages: Stages,
    },
    /// `dirty_pages`: as many were put back.
    Rewound {
        dirty_pages: u64,
        stages: Stages,
    },
    /// Runs of pages (by guest-physical address / 4096) and of blocks of the disk, ascending, as `[first, length]`.
    Compared {
        pages: Vec<(u64, u64)>,
        blocks: Vec<(u64, u64)>,
    },
    Forked {
        tag: u64,
        pid: u32,
        stages: Stages,
    },
    Checkpointed {
        tag: u64,
        pid: u32,
        stages: Stages,
    },
    SavedWhole {
        #[serde(rename = "memoryMiB")]
        memory_mib: u32,
        file_bytes: u64,
        stages: Stages,
    },
    /// A command failed. `poisons`: the VM may be damaged and must not be used again.
    Failed {
        code: String,
        message: String,
        poisons: bool,
    },
    /// The guest ended its own VM; the process exits after this message.
    GuestEnded {
        reason: GuestEnd,
        detail: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuestEnd {
    /// Orderly power-off or reset request.
    Shutdown,
    TripleFault,
    /// KVM could not go on with the guest (internal error, failed entry, unhandled exit).
    Unrunnable,
    /// A device was driven outside its specification.
    DeviceAbuse,
}
