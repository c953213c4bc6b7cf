//! Which model-specific registers are carried from a template to its children.

use std::ops::RangeInclusive;

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::{Kvm, VcpuFd};
use serde::{Deserialize, Serialize};

use crate::kvm::{KvmError, Named};

pub const TSC: u32 = 0x10;
pub const TSC_DEADLINE: u32 = 0x6e0;

/// Registers that hold guest state, by the Intel and AMD manuals and KVM's documentation. What is not named here is
/// read-only, write-only, a counter of the host, or belongs to a feature that `cpuid` hides.
const ALLOWED: &[RangeInclusive<u32>] = &[
    0x3a..=0x3a,   // FEATURE_CONTROL
    0x3b..=0x3b,   // TSC_ADJUST
    0x48..=0x48,   // SPEC_CTRL
    0xe1..=0xe1,   // UMWAIT_CONTROL
    0x122..=0x122, // TSX_CTRL
    0x140..=0x140, // MISC_FEATURES_ENABLES
    0x174..=0x176, // SYSENTER_*
    0x17a..=0x17b, // MCG_STATUS, MCG_CTL
    0x1a0..=0x1a0, // MISC_ENABLE
    0x1c4..=0x1c5, // XFD, XFD_ERR
    0x1d9..=0x1d9, // DEBUGCTL
    0x200..=0x20f, // variable MTRRs
    0x250..=0x250, // fixed MTRRs
    0x258..=0x259,
    0x268..=0x26f,
    0x277..=0x277, // PAT
    0x2ff..=0x2ff, // default MTRR
    0x400..=0x47f, // machine check banks
    TSC_DEADLINE..=TSC_DEADLINE,
    0xda0..=0xda0,             // XSS
    0x4b56_4d00..=0x4b56_4d01, // kvm-clock
    0x4b56_4d03..=0x4b56_4d05, // steal time, PV EOI, halt polling
    0xc000_0081..=0xc000_0084, // STAR, LSTAR, CSTAR, FMASK
    0xc000_0102..=0xc000_0104, // KERNEL_GS_BASE, TSC_AUX, TSC_RATIO
    0xc001_0015..=0xc001_0015, // HWCR
    0xc001_011f..=0xc001_011f, // VIRT_SPEC_CTRL
    0xc001_1029..=0xc001_1029, // DE_CFG
];

/// The registers of this host and guest that can be read, found out once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MsrList {
    indices: Vec<u32>,
}

impl MsrList {
    /// Asks KVM which of the allowed registers exist for a vCPU whose CPUID is set.
    pub fn probe(kvm: &Kvm, vcpu: &VcpuFd) -> Result<Self, KvmError> {
        let known = kvm.get_msr_index_list().named("KVM_GET_MSR_INDEX_LIST")?;
        let mut indices: Vec<u32> = known
            .as_slice()
            .iter()
            .copied()
            .filter(|index| is_allowed(*index))
            .collect();
        loop {
            let mut msrs = entries(&indices)?;
            let read = vcpu.get_msrs(&mut msrs).named("KVM_GET_MSRS")?;
            if read == indices.len() {
                return Ok(Self { indices });
            }
            // KVM stops at the first one that this guest does not have.
            indices.remove(read);
        }
    }

    pub fn read(&self, vcpu: &VcpuFd) -> Result<Msrs, KvmError> {
        let mut msrs = entries(&self.indices)?;
        let read = vcpu.get_msrs(&mut msrs).named("KVM_GET_MSRS")?;
        match self.indices.get(read) {
            None => Ok(msrs),
            Some(index) => Err(KvmError::Msr { index: *index }),
        }
    }
}

/// One register of a vCPU.
pub fn read_one(vcpu: &VcpuFd, index: u32) -> Result<u64, KvmError> {
    let mut msrs = entries(&[index])?;
    match vcpu.get_msrs(&mut msrs).named("KVM_GET_MSRS")? {
        0 => Err(KvmError::Msr { index }),
        _ => Ok(msrs.as_slice()[0].data),
    }
}

/// Sets all, or says which one KVM refused: it stops there without an error.
pub fn write(vcpu: &VcpuFd, msrs: &Msrs) -> Result<(), KvmError> {
    let written = vcpu.set_msrs(msrs).named("KVM_SET_MSRS")?;
    match msrs.as_slice().get(written) {
        None => Ok(()),
        Some(refused) => Err(KvmError::Msr { index: refused.index }),
    }
}

fn is_allowed(index: u32) -> bool {
    ALLOWED.iter().any(|range| range.contains(&index))
}

fn entries(indices: &[u32]) -> Result<Msrs, KvmError> {
    let entries: Vec<_> = indices
        .iter()
        .map(|index| kvm_msr_entry {
            index: *index,
            ..Default::default()
        })
        .collect();
    Ok(Msrs::from_entries(&entries)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_list_has_the_registers_that_a_linux_guest_sets() {
        for index in [
            0x174,
            0x277,
            0x4b56_4d01,
            0x4b56_4d04,
            0xc000_0082,
            0xc000_0102,
            TSC_DEADLINE,
        ] {
            assert!(is_allowed(index), "{index:#x}");
        }
    }

    #[test]
    fn allow_list_leaves_out_the_clock_async_faults_and_hyper_v() {
        for index in [TSC, 0x4b56_4d02, 0x4b56_4d06, 0x4000_0000, 0x11, 0x12] {
            assert!(!is_allowed(index), "{index:#x}");
        }
    }
}
