//! Why a vCPU has come back, from the words that KVM leaves for whoever ran it.

use std::slice;

use kvm_bindings::*;
use kvm_ioctls::{VcpuExit, VcpuFd};

/// The last exit of a vCPU for which `KVM_RUN` has returned 0. Those that end a machine are told by their number.
pub fn last_exit(vcpu: &mut VcpuFd) -> VcpuExit<'_> {
    let run = vcpu.get_kvm_run();
    match run.exit_reason {
        KVM_EXIT_IO => port_access(run),
        KVM_EXIT_MMIO => memory_access(run),
        KVM_EXIT_INTR => VcpuExit::Intr,
        KVM_EXIT_IRQ_WINDOW_OPEN => VcpuExit::IrqWindowOpen,
        KVM_EXIT_SHUTDOWN => VcpuExit::Shutdown,
        KVM_EXIT_SYSTEM_EVENT => {
            // SAFETY: the reason says which member of the union was written.
            let event = unsafe { run.__bindgen_anon_1.system_event };
            VcpuExit::SystemEvent(event.type_, &[])
        }
        reason => VcpuExit::Unsupported(reason),
    }
}

fn port_access(run: &mut kvm_run) -> VcpuExit<'_> {
    let start = ptr(run);
    // SAFETY: the reason says which member of the union was written.
    let io = unsafe { run.__bindgen_anon_1.io };
    let bytes = io.count as usize * usize::from(io.size);
    // SAFETY: KVM puts the data at this offset of the mapping that begins with `run`; nothing else borrows them.
    let data = unsafe { slice::from_raw_parts_mut(start.add(io.data_offset as usize), bytes) };
    match u32::from(io.direction) {
        KVM_EXIT_IO_IN => VcpuExit::IoIn(io.port, data),
        _ => VcpuExit::IoOut(io.port, data),
    }
}

fn memory_access(run: &mut kvm_run) -> VcpuExit<'_> {
    // SAFETY: the reason says which member of the union was written.
    let mmio = unsafe { &mut run.__bindgen_anon_1.mmio };
    let length = (mmio.len as usize).min(mmio.data.len());
    match mmio.is_write {
        0 => VcpuExit::MmioRead(mmio.phys_addr, &mut mmio.data[..length]),
        _ => VcpuExit::MmioWrite(mmio.phys_addr, &mmio.data[..length]),
    }
}

fn ptr(run: &mut kvm_run) -> *mut u8 {
    (&raw mut *run).cast()
}
