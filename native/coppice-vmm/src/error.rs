//! What a failed command answers.

use coppice_wire::blank::BlankError;
use coppice_wire::vmm::MAX_VCPUS;

use crate::boot::BootError;
use crate::confine::ConfineError;
use crate::control::ControlError;
use crate::devices::Abuse;
use crate::kvm::KvmError;
use crate::memory::MemoryError;

/// Why a command failed. `docs/errors.md` lists the codes.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    #[error("{command} needs a machine that is {needs}; this one is {is}")]
    State {
        command: &'static str,
        needs: &'static str,
        is: &'static str,
    },
    #[error("A guest with {vcpus} vCPUs is outside 1..={MAX_VCPUS}; choose a number of vCPUs in that range")]
    Vcpus { vcpus: u8 },
    #[error("Agent message of {bytes} bytes does not fit: the guest has not read what was sent before")]
    Backlog { bytes: usize },
    #[error("{command} came without the new process's control socket")]
    NoSocket { command: &'static str },
    #[error("A machine that was booted has to be parked once before it can be copied while it runs")]
    ColdCheckpoint,
    /// The machine goes on, or stays frozen, as it was.
    #[error("Copying the process failed: {0}")]
    Copy(std::io::Error),
    #[error("{call} failed: {source}")]
    Host { call: &'static str, source: std::io::Error },
    #[error("Image {path} can't be opened: {source}")]
    Image { path: String, source: std::io::Error },
    #[error(transparent)]
    Blank(#[from] BlankError),
    #[error("The machine was not forked to be rewound")]
    NotRewindable,
    #[error("The differences are in more than {limit} pieces")]
    Scattered { limit: usize },
    #[error("{call} failed: {source}")]
    Compare { call: &'static str, source: std::io::Error },
    #[error("{command} came without the file that it needs")]
    NotLent { command: &'static str },
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Kvm(#[from] KvmError),
    #[error("The machine and its memory can't be put into one file, or got out of it: {0}")]
    Whole(String),
    #[error("Virtio queue can't be made: {0}")]
    Queue(#[from] virtio_queue::Error),
    /// The guest's fault, and its end.
    #[error(transparent)]
    Abuse(#[from] Abuse),
    /// The process's end.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl VmmError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::State { .. } | Self::ColdCheckpoint | Self::NotRewindable => "VMM_WRONG_STATE",
            Self::Vcpus { .. } | Self::Memory(MemoryError::Size { .. }) => "VMM_BAD_SIZE",
            Self::Backlog { .. } => "VMM_AGENT_BACKLOG",
            Self::NoSocket { .. } | Self::NotLent { .. } | Self::Control(_) => "VMM_PROTOCOL",
            Self::Whole(_) => "VMM_WHOLE",
            Self::Image { .. } | Self::Blank(_) | Self::Boot(_) => "VMM_BOOT_FILES",
            Self::Memory(_) | Self::Host { .. } | Self::Copy(_) | Self::Compare { .. } | Self::Queue(_) => "VMM_HOST",
            Self::Scattered { .. } => "VMM_TOO_LARGE",
            Self::Confine(_) => "VMM_CONFINEMENT",
            Self::Kvm(_) => "VMM_KVM",
            Self::Abuse(_) => "VMM_DEVICE_ABUSE",
        }
    }

    /// Whether the machine may be damaged: a refusal leaves it as it was, anything that fails half-way may not.
    pub fn poisons(&self) -> bool {
        !matches!(
            self,
            Self::State { .. }
                | Self::Vcpus { .. }
                | Self::Backlog { .. }
                | Self::NoSocket { .. }
                | Self::ColdCheckpoint
                | Self::NotRewindable
                | Self::Scattered { .. }
                | Self::Compare { .. }
                | Self::Copy(_)
                | Self::NotLent { .. }
                | Self::Whole(_)
                | Self::Image { .. }
                | Self::Blank(_)
                | Self::Boot(_)
                | Self::Memory(MemoryError::Size { .. })
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_do_not_poison_and_failures_half_way_do() {
        assert!(
            !VmmError::State {
                command: "Fork",
                needs: "frozen",
                is: "running"
            }
            .poisons()
        );
        assert!(!VmmError::Memory(MemoryError::Size { mib: 1 }).poisons());
        let no_memory = std::io::Error::from_raw_os_error(libc::ENOMEM);
        assert!(
            !VmmError::Copy(no_memory).poisons(),
            "a host without memory must not cost a checkpoint"
        );
        assert!(VmmError::Kvm(KvmError::Msr { index: 1 }).poisons());
    }
}
