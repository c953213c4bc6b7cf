//! Processor features that the guest sees: what KVM supports, less what could not be carried through a fork.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::{Cap, Kvm};

use crate::kvm::{KvmError, Named, topology};

pub const FEATURES: u32 = 0x1;
const PERFORMANCE: u32 = 0xa;
pub const TOPOLOGY: u32 = 0xb;
pub const TOPOLOGY_V2: u32 = 0x1f;
const KVM_FEATURES: u32 = 0x4000_0001;
pub const EXTENDED_FEATURES: u32 = 0x8000_0001;
const POWER: u32 = 0x8000_0007;
const PERFORMANCE_AMD: u32 = 0x8000_0022;

const ECX_VMX: u32 = 1 << 5;
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
const ECX_SVM: u32 = 1 << 2;
const ECX_PERFORMANCE_CORE: u32 = 1 << 23;

/// With it Linux would keep time by the counter instead of kvm-clock, which alone is told how long a message was on its way.
const EDX_INVARIANT_TSC: u32 = 1 << 8;

/// Asynchronous page faults: one that waits when the guest is frozen would never be answered in its children.
const EAX_ASYNC_PF: u32 = 1 << 4 | 1 << 10 | 1 << 14;

/// CPUID of a guest on this host. Children of a template get the template's, never a new one.
pub fn guest_cpuid(kvm: &Kvm) -> Result<CpuId, KvmError> {
    let mut cpuid = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .named("KVM_GET_SUPPORTED_CPUID")?;
    let deadline = kvm.check_extension(Cap::TscDeadlineTimer);
    cpuid
        .as_mut_slice()
        .iter_mut()
        .for_each(|entry| adjust(entry, deadline));
    Ok(cpuid)
}

fn adjust(entry: &mut kvm_cpuid_entry2, deadline: bool) {
    match entry.function {
        FEATURES => {
            entry.ecx = entry.ecx & !ECX_VMX | ECX_HYPERVISOR;
            if deadline {
                entry.ecx |= ECX_TSC_DEADLINE;
            }
        }
        // Counters would be one more state to carry, and no use without access to the host's.
        PERFORMANCE | PERFORMANCE_AMD => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        KVM_FEATURES => entry.eax &= !EAX_ASYNC_PF,
        POWER => entry.edx &= !EDX_INVARIANT_TSC,
        EXTENDED_FEATURES => entry.ecx &= !(ECX_SVM | ECX_PERFORMANCE_CORE),
        _ => {}
    }
}

/// The CPUID of one of `vcpus` vCPUs: the machine's with its own APIC id and, where there are several, their topology. The
/// host's says how many processors the host has.
pub fn for_vcpu(cpuid: &CpuId, id: u8, vcpus: u8) -> Result<CpuId, KvmError> {
    if vcpus > 1 {
        return topology::for_vcpu(cpuid, id, vcpus);
    }
    let mut cpuid = cpuid.clone();
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            FEATURES => entry.ebx = entry.ebx & 0x00ff_ffff | u32::from(id) << 24,
            TOPOLOGY | TOPOLOGY_V2 => entry.edx = u32::from(id),
            _ => {}
        }
    }
    Ok(cpuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(function: u32, value: u32) -> kvm_cpuid_entry2 {
        let mut entry = kvm_cpuid_entry2 {
            function,
            eax: value,
            ebx: value,
            ecx: value,
            edx: value,
            ..Default::default()
        };
        adjust(&mut entry, true);
        entry
    }

    #[test]
    fn cpuid_hides_what_a_fork_can_not_carry() {
        assert_eq!(adjusted(KVM_FEATURES, u32::MAX).eax & EAX_ASYNC_PF, 0);
        assert_eq!(adjusted(FEATURES, u32::MAX).ecx & ECX_VMX, 0);
        assert_eq!(adjusted(EXTENDED_FEATURES, u32::MAX).ecx & ECX_SVM, 0);
        assert_eq!(adjusted(PERFORMANCE, u32::MAX).eax, 0);
        assert_eq!(adjusted(POWER, u32::MAX).edx & EDX_INVARIANT_TSC, 0);
    }

    #[test]
    fn cpuid_offers_the_deadline_timer_and_says_hypervisor() {
        assert_eq!(adjusted(FEATURES, 0).ecx, ECX_TSC_DEADLINE | ECX_HYPERVISOR);
    }

    #[test]
    fn cpuid_of_a_vcpu_has_its_apic_id() {
        let entry = kvm_cpuid_entry2 {
            function: FEATURES,
            ebx: 0xff12_3456,
            ..Default::default()
        };
        let cpuid = for_vcpu(&CpuId::from_entries(&[entry]).unwrap(), 3, 1).unwrap();
        assert_eq!(cpuid.as_slice()[0].ebx, 0x0312_3456);
    }
}
