//! The guest's time-stamp counter, which must go on in a child where it stopped in its template.

use std::arch::x86_64::_rdtsc;

use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, KVMIO, Msrs, kvm_device_attr, kvm_msr_entry};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

use crate::kvm::{KvmError, msrs};

// kvm-ioctls has these calls on vCPUs for other architectures only.
ioctl_iow_nr!(KVM_SET_DEVICE_ATTR, KVMIO, 0xe1, kvm_device_attr);
ioctl_iow_nr!(KVM_HAS_DEVICE_ATTR, KVMIO, 0xe3, kvm_device_attr);

pub fn read(vcpu: &VcpuFd) -> Result<u64, KvmError> {
    msrs::read_one(vcpu, msrs::TSC)
}

/// Sets the counter by its offset from the host's. A write to the MSR will not do: KVM takes one whose value is within a
/// second of what it expects for an attempt to synchronise vCPUs, and ignores the value.
pub fn write(vcpu: &VcpuFd, value: u64) -> Result<(), KvmError> {
    let attribute = |address| kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: address,
        flags: 0,
    };
    // SAFETY: a vCPU descriptor and a valid structure, whose address this call does not use.
    if unsafe { ioctl_with_ref(vcpu, KVM_HAS_DEVICE_ATTR(), &attribute(0)) } != 0 {
        return write_msr(vcpu, value);
    }
    // SAFETY: every x86-64 processor has the instruction.
    let offset = value.wrapping_sub(unsafe { _rdtsc() });
    let attribute = attribute(&raw const offset as u64);
    // SAFETY: as above, and the address is that of `offset`, the u64 that KVM reads for this attribute.
    match unsafe { ioctl_with_ref(vcpu, KVM_SET_DEVICE_ATTR(), &attribute) } {
        0 => Ok(()),
        _ => Err(KvmError::Call {
            call: "KVM_SET_DEVICE_ATTR(KVM_VCPU_TSC_OFFSET)",
            source: kvm_ioctls::Error::last(),
        }),
    }
}

/// Kernels before 5.16.
fn write_msr(vcpu: &VcpuFd, data: u64) -> Result<(), KvmError> {
    let entry = kvm_msr_entry {
        index: msrs::TSC,
        data,
        ..Default::default()
    };
    msrs::write(vcpu, &Msrs::from_entries(&[entry])?)
}
