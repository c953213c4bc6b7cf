//! Running a vCPU: one entry into the guest at a time, and what its exit asks for.

use coppice_wire::vmm::GuestEnd;
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};

use crate::devices::{Devices, PortEffect};
use crate::error::VmmError;
use crate::kvm::{KvmError, LiveVm};
use crate::memory::Memory;

/// Exits that completing one instruction may take. KVM cuts string instructions into far fewer.
const MAX_COMPLETIONS: usize = 4096;

/// What became of one entry into the guest.
#[derive(Debug)]
pub enum Turn {
    /// An exit was handled; the guest can go on.
    Handled,
    /// A signal or `immediate_exit` brought the vCPU back; the guest can go on.
    Interrupted,
    /// The guest is at its end.
    Ended { reason: GuestEnd, detail: String },
}

/// Enters the guest once and handles the exit.
pub fn turn(live: &mut LiveVm, index: usize, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    let vcpu = &mut live.vcpus[index];
    let exit = vcpu.run();
    // Whatever was open before has been completed on the way in.
    live.is_exit_open = !matches!(exit, Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) | Err(_));
    match exit {
        Ok(VcpuExit::MmioWrite(address, data)) => devices.mmio_write(address, data, memory)?,
        Ok(VcpuExit::MmioRead(address, data)) => devices.mmio_read(address, data),
        Ok(VcpuExit::IoIn(port, data)) => devices.port_read(port, data),
        Ok(VcpuExit::IoOut(port, data)) => match devices.port_write(port, data) {
            PortEffect::None => {}
            PortEffect::PowerOff => return Ok(ended(GuestEnd::Shutdown, "power-off")),
            PortEffect::Reset => return Ok(ended(GuestEnd::Shutdown, "reset")),
        },
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => return Ok(Turn::Interrupted),
        Ok(VcpuExit::Shutdown) => return Ok(ended(GuestEnd::TripleFault, "triple fault")),
        Ok(VcpuExit::SystemEvent(kind, _)) => {
            return Ok(ended(GuestEnd::Shutdown, &format!("system event {kind}")));
        }
        Ok(exit) => {
            let exit = format!("{exit:?}");
            return Ok(unrunnable(vcpu, &exit));
        }
        Err(error) => match error.errno() {
            libc::EINTR | libc::EAGAIN => return Ok(Turn::Interrupted),
            _ => return Ok(unrunnable(vcpu, &format!("KVM_RUN failed: {error}"))),
        },
    }
    sync_lines(devices, &live.vm)?;
    Ok(Turn::Handled)
}

/// Completes what the last exit left open (the second half of an I/O instruction) without running the guest. State
/// that is saved without this repeats the instruction when it is restored. Most machines are stopped while their guest
/// waits or computes, with nothing open.
pub fn complete(live: &mut LiveVm, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    for index in 0..live.vcpus.len() {
        for _ in 0..MAX_COMPLETIONS {
            if !live.is_exit_open {
                break;
            }
            live.vcpus[index].set_kvm_immediate_exit(1);
            let turn = turn(live, index, devices, memory);
            live.vcpus[index].set_kvm_immediate_exit(0);
            match turn? {
                Turn::Handled => {}
                Turn::Interrupted => break,
                ended @ Turn::Ended { .. } => return Ok(ended),
            }
        }
    }
    Ok(Turn::Interrupted)
}

/// Tells the interrupt controller what changed on the devices' lines.
pub fn sync_lines(devices: &mut Devices, vm: &VmFd) -> Result<(), KvmError> {
    devices.sync_lines(|gsi, level| {
        vm.set_irq_line(gsi, level).map_err(|source| KvmError::Call {
            call: "KVM_IRQ_LINE",
            source,
        })
    })
}

fn ended(reason: GuestEnd, detail: &str) -> Turn {
    Turn::Ended {
        reason,
        detail: detail.to_owned(),
    }
}

/// Where the guest was helps to tell a broken kernel from a broken host.
fn unrunnable(vcpu: &mut VcpuFd, exit: &str) -> Turn {
    let at = vcpu
        .get_regs()
        .map_or_else(|_| "unknown".to_owned(), |regs| format!("{:#x}", regs.rip));
    let run = vcpu.get_kvm_run();
    // SAFETY: plain integers of the structure's union, which any bits are valid for; meaningful for internal errors.
    let suberror = unsafe { run.__bindgen_anon_1.internal.suberror };
    ended(
        GuestEnd::Unrunnable,
        &format!("{exit}, exit reason {}, suberror {suberror}, rip {at}", run.exit_reason),
    )
}
