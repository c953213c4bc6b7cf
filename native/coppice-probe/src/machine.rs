//! The virtual machine around the guest: memory, tables, one processor.

use std::io;
use std::ptr::NonNull;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::guest::{
    APIC_WINDOW, CODE, DIRECTORY, FRAME_VALUES, FRAMES, GDT, GDT_POINTER, IDT, IDT_POINTER, KERNEL_STACK, PDPT, PML4,
    RESULT_PORT, STAGE_PORT, STAGES, TABLE, TSS, USER_STACK, expected_sum, guest,
};

const MEMORY_BYTES: usize = 0x20_0000;
const APIC_BASE: u64 = 0xfee0_0000;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
const UNCACHED: u64 = 0x10;

const BREAKPOINT_VECTOR: u64 = 3;
const PAGE_FAULT_VECTOR: u64 = 14;
const TIMER_VECTOR: u64 = 32;

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{what} fails: {source}")]
    Call { what: &'static str, source: io::Error },
    #[error("Guest stopped during {stage}: {exit}")]
    Stopped { stage: &'static str, exit: String },
    #[error("Guest computed {found:#x} instead of {expected:#x}")]
    Wrong { found: u64, expected: u64 },
}

fn call<E: Into<kvm_ioctls::Error>>(what: &'static str) -> impl FnOnce(E) -> ProbeError {
    move |error| ProbeError::Call {
        what,
        source: io::Error::from_raw_os_error(error.into().errno()),
    }
}

/// Runs the guest to its end. `on_stage` hears what it is about to do.
pub fn run(on_stage: &dyn Fn(&'static str)) -> Result<(), ProbeError> {
    on_stage("opening of /dev/kvm");
    let kvm = Kvm::new().map_err(call("Opening /dev/kvm"))?;
    on_stage("creation of a virtual machine");
    let vm = kvm.create_vm().map_err(call("Creating a virtual machine"))?;
    let memory = Memory::new()?;
    memory.fill();
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: memory.start.as_ptr() as u64,
    };
    // SAFETY: the region is a live mapping of that size, and `memory` outlives the machine: it is dropped after `vm`.
    unsafe { vm.set_user_memory_region(region) }.map_err(call("Giving memory to the guest"))?;
    vm.create_irq_chip()
        .map_err(call("Creating the interrupt controllers"))?;
    let cpu = create_cpu(&kvm, &vm)?;
    let outcome = run_cpu(cpu, on_stage);
    drop(vm);
    drop(memory);
    outcome
}

fn create_cpu(kvm: &Kvm, vm: &VmFd) -> Result<VcpuFd, ProbeError> {
    let cpu = vm.create_vcpu(0).map_err(call("Creating a processor"))?;
    let cpuid = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(call("Asking what processors can do"))?;
    cpu.set_cpuid2(&cpuid)
        .map_err(call("Saying what the processor can do"))?;
    let mut sregs = cpu.get_sregs().map_err(call("Reading the processor's state"))?;
    let flat = kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: 8,
        type_: 11,
        present: 1,
        dpl: 0,
        db: 1,
        s: 1,
        l: 0,
        g: 1,
        ..kvm_segment::default()
    };
    sregs.cs = flat;
    let data = kvm_segment {
        selector: 0x10,
        type_: 3,
        ..flat
    };
    for segment in [
        &mut sregs.ds,
        &mut sregs.es,
        &mut sregs.fs,
        &mut sregs.gs,
        &mut sregs.ss,
    ] {
        *segment = data;
    }
    sregs.cr0 |= 1;
    cpu.set_sregs(&sregs).map_err(call("Setting the processor's state"))?;
    let mut regs = cpu.get_regs().map_err(call("Reading the processor's registers"))?;
    regs.rip = CODE;
    regs.rsp = KERNEL_STACK;
    regs.rflags = 2;
    cpu.set_regs(&regs).map_err(call("Setting the processor's registers"))?;
    Ok(cpu)
}

fn run_cpu(mut cpu: VcpuFd, on_stage: &dyn Fn(&'static str)) -> Result<(), ProbeError> {
    let mut stage = STAGES[0];
    let mut halves = Vec::new();
    on_stage(stage);
    loop {
        let stopped = |exit: String| ProbeError::Stopped { stage, exit };
        match cpu.run() {
            Ok(VcpuExit::IoOut(STAGE_PORT, data)) => {
                let number = word(data);
                stage = *STAGES
                    .get(number as usize)
                    .ok_or_else(|| stopped(format!("it reports stage {number}, which does not exist")))?;
                on_stage(stage);
            }
            Ok(VcpuExit::IoOut(RESULT_PORT, data)) => {
                halves.push(u64::from(word(data)));
                if let [low, high] = halves[..] {
                    let (found, expected) = (low | high << 32, expected_sum());
                    return if found == expected {
                        Ok(())
                    } else {
                        Err(ProbeError::Wrong { found, expected })
                    };
                }
            }
            Ok(exit) => {
                let exit = format!("{exit:?}");
                return Err(ProbeError::Stopped {
                    stage,
                    exit: exit.chars().take(200).collect(),
                });
            }
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(stopped(io::Error::from_raw_os_error(error.errno()).to_string())),
        }
    }
}

fn word(data: &[u8]) -> u32 {
    data.first_chunk::<4>()
        .map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
}

/// The guest's memory.
struct Memory {
    start: NonNull<u8>,
}

impl Memory {
    fn new() -> Result<Self, ProbeError> {
        // SAFETY: a new private mapping; the result is checked before it is used.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MEMORY_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast()) {
            Some(start) if address != libc::MAP_FAILED => Ok(Self { start }),
            _ => Err(ProbeError::Call {
                what: "Reserving memory",
                source: io::Error::last_os_error(),
            }),
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        assert!(
            at + bytes.len() <= MEMORY_BYTES,
            "constants of the guest's layout lie in its memory"
        );
        // SAFETY: the target lies in the mapping, as asserted; the guest does not run yet, and nothing else has the address.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    fn write_u64(&self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Code, page tables, descriptor tables, and the two frames.
    fn fill(&self) {
        let guest = guest();
        self.write(CODE, guest.code);

        // The user's code and stack are in pages that it may use; one page of the kernel's must stay out of its reach.
        self.write_u64(PML4, PDPT | PRESENT | WRITABLE | USER);
        self.write_u64(PDPT, DIRECTORY | PRESENT | WRITABLE | USER);
        self.write_u64(DIRECTORY, TABLE | PRESENT | WRITABLE | USER);
        for page in 0..512_u64 {
            let address = page * 4096;
            let is_users = (CODE..CODE + 0x1_0000).contains(&address) || address == USER_STACK - 4096;
            let user = if is_users { USER } else { 0 };
            self.write_u64(TABLE + page * 8, address | PRESENT | WRITABLE | user);
        }
        self.write_u64(
            TABLE + APIC_WINDOW / 4096 * 8,
            APIC_BASE | PRESENT | WRITABLE | UNCACHED,
        );

        // Null, kernel code, kernel data, user data, user code, and the task state in two entries.
        let task = (TSS & 0xff_ffff) << 16 | 0x67 | 0x89 << 40;
        let descriptors = [
            0,
            0x00af_9b00_0000_ffff,
            0x00cf_9300_0000_ffff,
            0x00cf_f300_0000_ffff,
            0x00af_fb00_0000_ffff,
            task,
            0,
        ];
        for (index, descriptor) in (0_u64..).zip(descriptors) {
            self.write_u64(GDT + index * 8, descriptor);
        }
        self.write(GDT_POINTER, &pointer(7 * 8, GDT));
        self.write(IDT_POINTER, &pointer(256 * 16, IDT));
        // Where the processor puts its stack when it leaves user mode.
        self.write_u64(TSS + 4, KERNEL_STACK);

        for (vector, handler) in [
            (BREAKPOINT_VECTOR, guest.breakpoint),
            (PAGE_FAULT_VECTOR, guest.page_fault),
            (TIMER_VECTOR, guest.timer),
        ] {
            let low = handler & 0xffff | 8 << 16 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
            self.write_u64(IDT + vector * 16, low);
            self.write_u64(IDT + vector * 16 + 8, handler >> 32);
        }
        for (frame, value) in FRAMES.into_iter().zip(FRAME_VALUES) {
            self.write_u64(frame, value);
        }
    }
}

/// What `lgdt` and `lidt` read: a limit, which is the last byte, and an address.
fn pointer(bytes: u16, address: u64) -> [u8; 10] {
    let mut operand = [0; 10];
    operand[..2].copy_from_slice(&(bytes - 1).to_le_bytes());
    operand[2..].copy_from_slice(&address.to_le_bytes());
    operand
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), MEMORY_BYTES) };
    }
}
