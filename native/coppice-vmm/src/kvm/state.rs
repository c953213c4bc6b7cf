//! Saving and restoring everything that KVM holds of a machine. Each order below is one that KVM needs.

use std::arch::x86_64::__cpuid;

use coppice_wire::vmm::host_time_ns;
use kvm_bindings::*;
use kvm_ioctls::{VcpuFd, VmFd};
use serde::{Deserialize, Serialize};

use crate::kvm::tsc::Counters;
use crate::kvm::vm::LiveVm;
use crate::kvm::{KvmError, MsrList, Named, msrs};

const IRQCHIPS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];

/// Type of an available task-state segment, as opposed to a busy one (11).
const AVAILABLE_TASK: u8 = 9;

/// A stopped machine.
#[derive(Serialize, Deserialize)]
pub struct VmState {
    irqchips: Vec<kvm_irqchip>,
    clock: GuestClock,
    counters: Counters,
    vcpus: Vec<VcpuState>,
}

/// A guest's monotonic clock (kvm-clock) where it stopped.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GuestClock {
    nanoseconds: u64,
    stopped_at_ns: u64,
}

/// A way from the daemon takes less; more is an error in somebody's clock.
const LONGEST_WAY_NS: u64 = 60_000_000_000;

impl GuestClock {
    pub fn read(vm: &VmFd) -> Result<Self, KvmError> {
        let nanoseconds = vm.get_clock().named("KVM_GET_CLOCK")?.clock;
        Ok(Self {
            nanoseconds,
            stopped_at_ns: host_time_ns(),
        })
    }

    /// The clock goes on from here as of host time `at_ns`: without flags KVM does not add the time in between.
    pub fn set(&self, vm: &VmFd, at_ns: u64) -> Result<(), KvmError> {
        let way = host_time_ns().saturating_sub(at_ns).min(LONGEST_WAY_NS);
        let clock = kvm_clock_data {
            clock: self.nanoseconds + way,
            ..Default::default()
        };
        vm.set_clock(&clock).named("KVM_SET_CLOCK")
    }
}

#[derive(Serialize, Deserialize)]
struct VcpuState {
    mp_state: kvm_mp_state,
    regs: kvm_regs,
    sregs: kvm_sregs,
    xsave: Box<kvm_xsave>,
    xcrs: kvm_xcrs,
    debug_regs: kvm_debugregs,
    lapic: Box<kvm_lapic_state>,
    msrs: Msrs,
    deadline: Option<Msrs>,
    events: kvm_vcpu_events,
}

/// The clocks of a machine that is stopped and keeps its VM. Time does not pass for its guest: what was to happen
/// meanwhile need not be caught up with, and no kernel has to take a leap that overflows its arithmetic.
pub struct StoppedClocks {
    monotonic: GuestClock,
    counters: Counters,
}

impl StoppedClocks {
    pub fn read(live: &LiveVm) -> Result<Self, KvmError> {
        Ok(Self {
            monotonic: GuestClock::read(&live.vm)?,
            counters: Counters::read(&live.vcpus)?,
        })
    }

    pub fn stopped_at_ns(&self) -> u64 {
        self.monotonic.stopped_at_ns
    }

    /// They go on as of host time `at_ns`.
    pub fn set(&self, live: &LiveVm, at_ns: u64) -> Result<(), KvmError> {
        self.monotonic.set(&live.vm, at_ns)?;
        self.counters.write(&live.vcpus)
    }
}

impl VmState {
    /// Reads all state of a machine whose vCPUs do not run and have completed their exits.
    pub fn save(live: &LiveVm, msrs: &MsrList) -> Result<Self, KvmError> {
        let vcpus = live
            .vcpus
            .iter()
            .map(|vcpu| VcpuState::save(vcpu, msrs))
            .collect::<Result<_, _>>()?;
        let mut irqchips = Vec::with_capacity(IRQCHIPS.len());
        for chip_id in IRQCHIPS {
            let mut chip = kvm_irqchip {
                chip_id,
                ..Default::default()
            };
            live.vm.get_irqchip(&mut chip).named("KVM_GET_IRQCHIP")?;
            irqchips.push(chip);
        }
        let counters = Counters::read(&live.vcpus)?;
        let clock = GuestClock::read(&live.vm)?;
        Ok(Self {
            irqchips,
            clock,
            counters,
            vcpus,
        })
    }

    /// Host time at which the machine stopped.
    pub fn stopped_at_ns(&self) -> u64 {
        self.clock.stopped_at_ns
    }

    /// Puts the state into a new machine whose CPUID is set. Its clocks go on as of host time `at_ns`.
    pub fn restore(&self, live: &LiveVm, at_ns: u64) -> Result<(), KvmError> {
        for chip in &self.irqchips {
            live.vm.set_irqchip(chip).named("KVM_SET_IRQCHIP")?;
        }
        self.clock.set(&live.vm, at_ns)?;
        // Before the timers' deadlines, which are times of these counters.
        self.counters.write(&live.vcpus)?;
        for (vcpu, state) in live.vcpus.iter().zip(&self.vcpus) {
            state.restore(vcpu)?;
        }
        Ok(())
    }
}

impl VcpuState {
    fn save(vcpu: &VcpuFd, list: &MsrList) -> Result<Self, KvmError> {
        // First, because reading it makes KVM process pending INIT and SIPI, which changes the rest.
        let mp_state = vcpu.get_mp_state().named("KVM_GET_MP_STATE")?;
        let regs = vcpu.get_regs().named("KVM_GET_REGS")?;
        let sregs = vcpu.get_sregs().named("KVM_GET_SREGS")?;
        let xsave = Box::new(vcpu.get_xsave().named("KVM_GET_XSAVE")?);
        let xcrs = vcpu.get_xcrs().named("KVM_GET_XCRS")?;
        let debug_regs = vcpu.get_debug_regs().named("KVM_GET_DEBUGREGS")?;
        let lapic = Box::new(vcpu.get_lapic().named("KVM_GET_LAPIC")?);
        let msrs = list.read(vcpu)?;
        let deadline = msrs.as_slice().iter().find(|entry| entry.index == msrs::TSC_DEADLINE);
        let deadline = deadline.map(|entry| Msrs::from_entries(&[*entry])).transpose()?;
        // Last, as everything above may still change what is pending.
        let events = vcpu.get_vcpu_events().named("KVM_GET_VCPU_EVENTS")?;
        Ok(Self {
            mp_state,
            regs,
            sregs,
            xsave,
            xcrs,
            debug_regs,
            lapic,
            msrs,
            deadline,
            events,
        })
    }

    fn restore(&self, vcpu: &VcpuFd) -> Result<(), KvmError> {
        // The APIC base in here comes before the APIC's registers.
        vcpu.set_sregs(&self.sregs_for_this_host()).named("KVM_SET_SREGS")?;
        vcpu.set_xcrs(&self.xcrs).named("KVM_SET_XCRS")?;
        // SAFETY: the structure came from KVM_GET_XSAVE of a vCPU with the same CPUID, without dynamic features, which
        // would need more than its 4 KiB.
        unsafe { vcpu.set_xsave(&self.xsave) }.named("KVM_SET_XSAVE")?;
        vcpu.set_regs(&self.regs).named("KVM_SET_REGS")?;
        vcpu.set_debug_regs(&self.debug_regs).named("KVM_SET_DEBUGREGS")?;
        msrs::write(vcpu, &self.msrs)?;
        vcpu.set_lapic(&self.lapic).named("KVM_SET_LAPIC")?;
        vcpu.set_vcpu_events(&self.events).named("KVM_SET_VCPU_EVENTS")?;
        vcpu.set_mp_state(self.mp_state).named("KVM_SET_MP_STATE")?;
        // Ignored before, when the timer was not in deadline mode yet.
        if let Some(deadline) = &self.deadline {
            msrs::write(vcpu, deadline)?;
        }
        skip_stall(vcpu)
    }

    /// QEMU's emulation of SVM checks I/O permissions against a task segment of type 9 only; real processors want the
    /// busy type that was saved.
    fn sregs_for_this_host(&self) -> kvm_sregs {
        let mut sregs = self.sregs;
        if is_emulated() {
            sregs.tr.type_ = AVAILABLE_TASK;
        }
        sregs
    }
}

/// Tells a guest that uses kvm-clock that it was stopped, so that its watchdogs do not take the gap for a hang.
pub fn skip_stall(vcpu: &VcpuFd) -> Result<(), KvmError> {
    match vcpu.kvmclock_ctrl() {
        // The guest has not set the clock up (yet).
        Err(error) if error.errno() == libc::EINVAL => Ok(()),
        other => other.named("KVM_KVMCLOCK_CTRL"),
    }
}

/// Whether this host is itself emulated by QEMU without hardware virtualization.
fn is_emulated() -> bool {
    const HYPERVISOR_LEAF: u32 = 0x4000_0000;
    const HYPERVISOR: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return false;
    }
    let leaf = __cpuid(HYPERVISOR_LEAF);
    [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}
