//! Everything that KVM knows about a machine: making it, its processor features, saving and restoring its state.

mod cpuid;
mod msrs;
mod state;
mod topology;
mod tsc;
mod vm;

pub use cpuid::guest_cpuid;
pub use msrs::MsrList;
pub use state::{StoppedClocks, VmState, skip_stall};
pub use vm::{LiveVm, check_capabilities};

#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    #[error("{call} failed: {source}")]
    Call {
        call: &'static str,
        source: kvm_ioctls::Error,
    },
    #[error("KVM lacks {capability}; the host needs a newer kernel")]
    Missing { capability: &'static str },
    #[error("KVM refused MSR {index:#x} of the saved state")]
    Msr { index: u32 },
    #[error("KVM state does not fit its structure: {0}")]
    Structure(#[from] vmm_sys_util::fam::Error),
}

/// Names the call that a result came from.
trait Named<T> {
    fn named(self, call: &'static str) -> Result<T, KvmError>;
}

impl<T> Named<T> for Result<T, kvm_ioctls::Error> {
    fn named(self, call: &'static str) -> Result<T, KvmError> {
        self.map_err(|source| KvmError::Call { call, source })
    }
}
