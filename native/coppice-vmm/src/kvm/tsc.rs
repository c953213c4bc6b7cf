//! The guest's time-stamp counters, which must go on in a child where they stopped in its template.

use std::arch::x86_64::_rdtsc;

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, KVMIO, Msrs, kvm_device_attr, kvm_msr_entry};
use kvm_ioctls::VcpuFd;
use serde::{Deserialize, Serialize};
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

use crate::kvm::{KvmError, msrs};

// kvm-ioctls has these calls on vCPUs for other architectures only.
ioctl_iow_nr!(KVM_SET_DEVICE_ATTR, KVMIO, 0xe1, kvm_device_attr);
ioctl_iow_nr!(KVM_GET_DEVICE_ATTR, KVMIO, 0xe2, kvm_device_attr);
ioctl_iow_nr!(KVM_HAS_DEVICE_ATTR, KVMIO, 0xe3, kvm_device_attr);

/// The counters of a stopped machine. To its kernel they are one clock: they are read and set together, or each would be
/// off by the time that reading and setting the others took.
#[derive(Serialize, Deserialize)]
pub struct Counters {
    first: u64,
    /// By what each other counter is ahead of the first: as a rule nothing.
    leads: Vec<u64>,
}

impl Counters {
    pub fn read(vcpus: &[VcpuFd]) -> Result<Self, KvmError> {
        let (first, others) = split(vcpus);
        let leads = match others {
            [] => Vec::new(),
            _ if !has_offset(first) => vec![0; others.len()],
            _ => {
                let base = offset(first)?;
                let lead = |vcpu| Ok(offset(vcpu)?.wrapping_sub(base));
                others.iter().map(lead).collect::<Result<_, KvmError>>()?
            }
        };
        Ok(Self {
            first: msrs::read_one(first, msrs::TSC)?,
            leads,
        })
    }

    /// Sets the counters by their offset from the host's. A write to the MSR will not do: KVM takes one whose value is
    /// within a second of what it expects for an attempt to synchronise vCPUs, and ignores the value.
    pub fn write(&self, vcpus: &[VcpuFd]) -> Result<(), KvmError> {
        let (first, others) = split(vcpus);
        let mut others = others.iter().zip(&self.leads);
        if !has_offset(first) {
            write_msr(first, self.first)?;
            return others.try_for_each(|(vcpu, lead)| write_msr(vcpu, self.first.wrapping_add(*lead)));
        }
        // SAFETY: every x86-64 processor has the instruction.
        let base = self.first.wrapping_sub(unsafe { _rdtsc() });
        set_offset(first, base)?;
        others.try_for_each(|(vcpu, lead)| set_offset(vcpu, base.wrapping_add(*lead)))
    }
}

/// Every machine has a first vCPU.
fn split(vcpus: &[VcpuFd]) -> (&VcpuFd, &[VcpuFd]) {
    (&vcpus[0], &vcpus[1..])
}

fn attribute(address: u64) -> kvm_device_attr {
    kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: address,
        flags: 0,
    }
}

/// Kernels since 5.16 have it.
fn has_offset(vcpu: &VcpuFd) -> bool {
    // SAFETY: a vCPU descriptor and a valid structure, whose address this call does not use.
    unsafe { ioctl_with_ref(vcpu, KVM_HAS_DEVICE_ATTR(), &attribute(0)) == 0 }
}

fn offset(vcpu: &VcpuFd) -> Result<u64, KvmError> {
    let mut offset = 0u64;
    let attribute = attribute(&raw mut offset as u64);
    // SAFETY: a vCPU descriptor, and a structure with the address of the u64 that KVM writes for this attribute.
    match unsafe { ioctl_with_ref(vcpu, KVM_GET_DEVICE_ATTR(), &attribute) } {
        0 => Ok(offset),
        _ => Err(failed("KVM_GET_DEVICE_ATTR(KVM_VCPU_TSC_OFFSET)")),
    }
}

fn set_offset(vcpu: &VcpuFd, offset: u64) -> Result<(), KvmError> {
    let attribute = attribute(&raw const offset as u64);
    // SAFETY: a vCPU descriptor, and a structure with the address of the u64 that KVM reads for this attribute.
    match unsafe { ioctl_with_ref(vcpu, KVM_SET_DEVICE_ATTR(), &attribute) } {
        0 => Ok(()),
        _ => Err(failed("KVM_SET_DEVICE_ATTR(KVM_VCPU_TSC_OFFSET)")),
    }
}

fn failed(call: &'static str) -> KvmError {
    KvmError::Call {
        call,
        source: kvm_ioctls::Error::last(),
    }
}

fn write_msr(vcpu: &VcpuFd, data: u64) -> Result<(), KvmError> {
    let entry = kvm_msr_entry {
        index: msrs::TSC,
        data,
        ..Default::default()
    };
    msrs::write(vcpu, &Msrs::from_entries(&[entry])?)
}
