//! Running vCPUs: one entry into the guest at a time, and what the exits ask for, whichever thread they came to.

use coppice_wire::vmm::GuestEnd;
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use vmm_sys_util::errno;

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

/// Enters the guest once, on the first vCPU, and handles the exit.
pub fn turn(live: &mut LiveVm, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    let exit = live.vcpus[0].run();
    live.is_exit_open = is_open(&exit);
    let served = serve(exit, devices, memory)?;
    conclude(served, live, 0, devices)
}

/// Whether the next entry into the guest has something left to do. Whatever was left before was done on the way in.
pub fn is_open(exit: &Result<VcpuExit<'_>, errno::Error>) -> bool {
    !matches!(exit, Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) | Err(_))
}

/// Lets the vCPUs run that have threads of their own.
pub fn run_secondaries(live: &mut LiveVm) -> Result<(), VmmError> {
    let rest = live.vcpus.get_mut(1..).unwrap_or_default();
    live.secondaries.run(rest).map_err(|source| VmmError::Host {
        call: "Starting a vCPU's thread",
        source,
    })
}

/// Handles the exits of those that have come back.
pub fn serve_secondaries(live: &mut LiveVm, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    for index in 1..=live.secondaries.len() {
        if let ended @ Turn::Ended { .. } = serve_secondary(live, index, devices, memory)? {
            return Ok(ended);
        }
    }
    Ok(Turn::Handled)
}

fn serve_secondary(live: &mut LiveVm, index: usize, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    match live.secondaries.take_exit(index - 1, &mut live.vcpus[index]) {
        Some(exit) => {
            let served = serve(exit, devices, memory)?;
            conclude(served, live, index, devices)
        }
        None => Ok(Turn::Interrupted),
    }
}

/// What an exit comes to before its vCPU is looked at again.
enum Served {
    Done,
    Interrupted,
    Ended {
        reason: GuestEnd,
        detail: String,
    },
    /// It says nothing that a machine can go on with.
    Unrunnable {
        exit: String,
    },
}

fn serve(exit: Result<VcpuExit<'_>, errno::Error>, devices: &mut Devices, memory: &Memory) -> Result<Served, VmmError> {
    let ended = |detail: &str| Served::Ended {
        reason: GuestEnd::Shutdown,
        detail: detail.to_owned(),
    };
    match exit {
        Ok(VcpuExit::MmioWrite(address, data)) => devices.mmio_write(address, data, memory)?,
        Ok(VcpuExit::MmioRead(address, data)) => devices.mmio_read(address, data),
        Ok(VcpuExit::IoIn(port, data)) => devices.port_read(port, data),
        Ok(VcpuExit::IoOut(port, data)) => match devices.port_write(port, data) {
            PortEffect::None => {}
            PortEffect::PowerOff => return Ok(ended("power-off")),
            PortEffect::Reset => return Ok(ended("reset")),
        },
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => return Ok(Served::Interrupted),
        Ok(VcpuExit::Shutdown) => {
            return Ok(Served::Ended {
                reason: GuestEnd::TripleFault,
                detail: "triple fault".to_owned(),
            });
        }
        Ok(VcpuExit::SystemEvent(kind, _)) => return Ok(ended(&format!("system event {kind}"))),
        Ok(exit) => {
            return Ok(Served::Unrunnable {
                exit: format!("{exit:?}"),
            });
        }
        Err(error) => match error.errno() {
            libc::EINTR | libc::EAGAIN => return Ok(Served::Interrupted),
            _ => {
                return Ok(Served::Unrunnable {
                    exit: format!("KVM_RUN failed: {error}"),
                });
            }
        },
    }
    Ok(Served::Done)
}

fn conclude(served: Served, live: &mut LiveVm, index: usize, devices: &mut Devices) -> Result<Turn, VmmError> {
    Ok(match served {
        // After each exit: a line that falls and rises again between two looks would be an edge that is lost.
        Served::Done => {
            sync_lines(devices, &live.vm)?;
            Turn::Handled
        }
        Served::Interrupted => Turn::Interrupted,
        Served::Ended { reason, detail } => Turn::Ended { reason, detail },
        Served::Unrunnable { exit } => unrunnable(&mut live.vcpus[index], &exit),
    })
}

/// Brings all vCPUs out of the guest that have threads of their own, and handles what they come back with.
pub fn stop_secondaries(live: &mut LiveVm, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    live.secondaries.stop();
    serve_secondaries(live, devices, memory)
}

/// Completes what the last exits left open (the second half of an I/O instruction) without running the guest, whose vCPUs
/// are all stopped. State that is saved without this repeats the instruction when it is restored. Most machines are stopped
/// while their guest waits or computes, with nothing open.
pub fn complete(live: &mut LiveVm, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    for index in 0..=live.secondaries.len() {
        for _ in 0..MAX_COMPLETIONS {
            if !has_open_exit(live, index) {
                break;
            }
            match complete_once(live, index, devices, memory)? {
                Turn::Handled => {}
                Turn::Interrupted => break,
                ended @ Turn::Ended { .. } => return Ok(ended),
            }
        }
    }
    Ok(Turn::Interrupted)
}

fn has_open_exit(live: &LiveVm, index: usize) -> bool {
    match index.checked_sub(1) {
        None => live.is_exit_open,
        Some(secondary) => live.secondaries.has_open_exit(secondary),
    }
}

fn complete_once(live: &mut LiveVm, index: usize, devices: &mut Devices, memory: &Memory) -> Result<Turn, VmmError> {
    match index.checked_sub(1) {
        None => {
            live.vcpus[0].set_kvm_immediate_exit(1);
            let turn = turn(live, devices, memory);
            live.vcpus[0].set_kvm_immediate_exit(0);
            turn
        }
        // On its own thread: KVM waits for a grace period where a vCPU changes threads.
        Some(secondary) => {
            live.secondaries.complete(secondary);
            serve_secondary(live, index, devices, memory)
        }
    }
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

/// Where the guest was helps to tell a broken kernel from a broken host.
fn unrunnable(vcpu: &mut VcpuFd, exit: &str) -> Turn {
    let at = vcpu
        .get_regs()
        .map_or_else(|_| "unknown".to_owned(), |regs| format!("{:#x}", regs.rip));
    let run = vcpu.get_kvm_run();
    // SAFETY: plain integers of the structure's union, which any bits are valid for; meaningful for internal errors.
    let suberror = unsafe { run.__bindgen_anon_1.internal.suberror };
    Turn::Ended {
        reason: GuestEnd::Unrunnable,
        detail: format!("{exit}, exit reason {}, suberror {suberror}, rip {at}", run.exit_reason),
    }
}
