//! A machine that KVM runs: VM, memory slots, interrupt controllers, vCPUs.

use kvm_bindings::{CpuId, KVM_MEM_LOG_DIRTY_PAGES, KVM_MP_STATE_HALTED, Msrs, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};

use crate::boot::registers;
use crate::kvm::{KvmError, Named, cpuid, msrs};
use crate::memory::{GuestRam, RamRegion};
use crate::secondaries::Secondaries;
use crate::stages::Stopwatch;

/// Three pages that Intel processors need for real mode; below the local APIC, in the MMIO hole.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// What must be there; everything else has a fallback or is in every KVM.
const REQUIRED: &[(Cap, &str)] = &[
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
    (Cap::AdjustClock, "KVM_CAP_ADJUST_CLOCK"),
    (Cap::MpState, "KVM_CAP_MP_STATE"),
    (Cap::VcpuEvents, "KVM_CAP_VCPU_EVENTS"),
    (Cap::Debugregs, "KVM_CAP_DEBUGREGS"),
    (Cap::Xsave, "KVM_CAP_XSAVE"),
    (Cap::Xcrs, "KVM_CAP_XCRS"),
];

/// Refuses a KVM that could not carry a guest's state.
pub fn check_capabilities(kvm: &Kvm) -> Result<(), KvmError> {
    match REQUIRED
        .iter()
        .find(|(capability, _)| !kvm.check_extension(*capability))
    {
        None => Ok(()),
        Some((_, capability)) => Err(KvmError::Missing { capability }),
    }
}

/// A VM over this process's guest RAM. It can't outlive the process or go to another one: KVM ties it to its maker's
/// address space.
pub struct LiveVm {
    /// First, so that their threads end before the vCPUs do.
    pub secondaries: Secondaries,
    pub vm: VmFd,
    pub vcpus: Vec<VcpuFd>,
    /// Whether the first vCPU's last entry into the guest ended in an exit whose second half the next entry will do.
    pub is_exit_open: bool,
}

impl LiveVm {
    /// Makes VM and vCPUs; their registers are as after a reset.
    pub fn new(
        kvm: &Kvm,
        ram: &GuestRam,
        cpuid: &CpuId,
        vcpus: u8,
        stopwatch: &mut Stopwatch,
    ) -> Result<Self, KvmError> {
        let vm = kvm.create_vm().named("KVM_CREATE_VM")?;
        stopwatch.lap("createVm");
        vm.set_tss_address(TSS_ADDRESS).named("KVM_SET_TSS_ADDR")?;
        // Before the interrupt controllers: a slot that is added to a VM that has them waits for a grace period.
        add_memory(&vm, ram)?;
        stopwatch.lap("memslots");
        vm.create_irq_chip().named("KVM_CREATE_IRQCHIP")?;
        stopwatch.lap("irqchip");
        let vcpus = (0..vcpus)
            .map(|id| {
                let vcpu = vm.create_vcpu(id.into()).named("KVM_CREATE_VCPU")?;
                vcpu.set_cpuid2(&cpuid::for_vcpu(cpuid, id, vcpus)?)
                    .named("KVM_SET_CPUID2")?;
                Ok(vcpu)
            })
            .collect::<Result<_, KvmError>>()?;
        stopwatch.lap("vcpus");
        let secondaries = Secondaries::default();
        Ok(Self {
            secondaries,
            vm,
            vcpus,
            is_exit_open: false,
        })
    }

    /// Whether every vCPU waits for an interrupt and has none to handle. Only of vCPUs that do not run.
    pub fn is_idle(&self) -> Result<bool, KvmError> {
        for vcpu in &self.vcpus {
            if vcpu.get_mp_state().named("KVM_GET_MP_STATE")?.mp_state != KVM_MP_STATE_HALTED {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The pages of one region that the guest, or KVM for it, has written since this was asked last, a bit each. Only of
    /// memory that is tracked.
    ///
    /// Where there are any, KVM protects them against writes again, and drops what the vCPUs have cached of the guest's
    /// page tables before they run: who then changes the pages need not see to it.
    pub fn take_guest_writes(&self, slot: u32, region: RamRegion) -> Result<Vec<u64>, KvmError> {
        self.vm
            .get_dirty_log(slot, region.bytes as usize)
            .named("KVM_GET_DIRTY_LOG")
    }

    /// Puts the first vCPU at the kernel's entry point. The others wait for it to start them.
    pub fn enter_kernel(&self, entry: u64) -> Result<(), KvmError> {
        let vcpu = &self.vcpus[0];
        let mut sregs = vcpu.get_sregs().named("KVM_GET_SREGS")?;
        registers::enter_long_mode(&mut sregs);
        vcpu.set_sregs(&sregs).named("KVM_SET_SREGS")?;
        vcpu.set_regs(&registers::general(entry)).named("KVM_SET_REGS")?;
        for vcpu in &self.vcpus {
            msrs::write(vcpu, &Msrs::from_entries(&registers::msrs())?)?;
        }
        Ok(())
    }
}

fn add_memory(vm: &VmFd, ram: &GuestRam) -> Result<(), KvmError> {
    let flags = match ram.is_tracked() {
        true => KVM_MEM_LOG_DIRTY_PAGES,
        false => 0,
    };
    for (slot, region) in (0u32..).zip(ram.regions()) {
        let region = kvm_userspace_memory_region {
            slot,
            guest_phys_addr: region.guest,
            memory_size: region.bytes,
            userspace_addr: ram.host_address(region.offset),
            flags,
        };
        // SAFETY: the range is guest RAM, which stays mapped at this address for the life of the process, and the slots
        // do not overlap.
        unsafe { vm.set_user_memory_region(region) }.named("KVM_SET_USER_MEMORY_REGION")?;
    }
    Ok(())
}
