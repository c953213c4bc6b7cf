//! The system calls of a VMM whose guest runs, and of everything forked from it. Each entry says who makes the call;
//! what nobody makes is not here. No lock is contended for: the threads of vCPUs take none.

use kvm_bindings::*;

use crate::secondaries;

/// What a call's arguments must be. Arguments that the kernel takes as 32 bits are compared as such.
pub enum When {
    Always,
    /// Argument, and the values that it may have.
    OneOf(usize, &'static [u32]),
    /// Argument, and bits that must not be set.
    Without(usize, u32),
    /// Arguments, and the one value that each must have, in all 64 bits.
    Exactly(&'static [(usize, u64)]),
    /// Arguments, and the one value that each must have.
    Both((usize, u32), (usize, u32)),
}

use When::{Always, Both, Exactly, OneOf, Without};

pub struct Allowed {
    pub call: i64,
    pub when: When,
}

const fn allow(call: i64, when: When) -> Allowed {
    Allowed { call, when }
}

const STDERR: u32 = libc::STDERR_FILENO as u32;
const EXECUTABLE: u32 = libc::PROT_EXEC as u32;

#[rustfmt::skip]
pub const ALLOWED: &[Allowed] = &[
    // KVM: making, running and saving a VM.
    allow(libc::SYS_ioctl, OneOf(1, KVM_CALLS)),
    // The control socket: commands and lent descriptors in, events out. No address: to nobody else.
    allow(libc::SYS_recvmsg, Always),
    allow(libc::SYS_sendto, Exactly(&[(4, 0), (5, 0)])),
    allow(libc::SYS_poll, Always),
    // It is set up for SIGIO in every child (the first three); the memory is sealed when a machine becomes a base.
    allow(libc::SYS_fcntl, OneOf(1, &[
        libc::F_GETFL as u32, libc::F_SETFL as u32, libc::F_SETOWN as u32, libc::F_ADD_SEALS as u32,
    ])),
    // The two files in /proc that the daemon lends, and blocks on their way from one extent to another.
    allow(libc::SYS_pread64, Always),
    allow(libc::SYS_pwrite64, Always),
    // Image and disk, from and to guest memory.
    allow(libc::SYS_preadv, Always),
    allow(libc::SYS_pwritev, Always),
    // What the guest discards of its disk: holes in a file, and no other change of it.
    allow(libc::SYS_fallocate, OneOf(1, &[(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32])),
    // How much the file system of the disk's extents has left.
    allow(libc::SYS_fstatfs, Always),
    allow(libc::SYS_close, Always),
    // A panic, and the word with which a VMM fails.
    allow(libc::SYS_write, OneOf(0, &[STDERR])),
    // Guest memory, KVM's shared page, the allocator; never executable.
    allow(libc::SYS_mmap, Without(2, EXECUTABLE)),
    allow(libc::SYS_mprotect, Without(2, EXECUTABLE)),
    allow(libc::SYS_munmap, Always),
    allow(libc::SYS_mremap, Always),
    allow(libc::SYS_brk, Always),
    // Copying pages early; the allocator gives memory back.
    allow(libc::SYS_madvise, OneOf(2, &[libc::MADV_POPULATE_WRITE as u32, libc::MADV_DONTNEED as u32])),
    // The fork, and no other: no thread, no shared memory, no namespace.
    allow(libc::SYS_clone, Exactly(&[(0, FORK_FLAGS), (1, 0), (2, 0), (3, 0), (4, 0)])),
    // The child's, which no fork inherits.
    allow(libc::SYS_prctl, Both((0, libc::PR_SET_PDEATHSIG as u32), (1, libc::SIGKILL as u32))),
    // Its own number: in events, and as the owner of the socket's signals.
    allow(libc::SYS_getpid, Always),
    // Return from the handler of SIGIO; a sleep that a stop signal has cut.
    allow(libc::SYS_rt_sigreturn, Always),
    allow(libc::SYS_restart_syscall, Always),
    // The end: at the exit of main the runtime takes its alternate stack away.
    allow(libc::SYS_sigaltstack, Always),
    allow(libc::SYS_exit_group, Always),
    // Death by a panic or a fault: abort, and the runtime's handler, which restores the default.
    allow(libc::SYS_rt_sigprocmask, Always),
    allow(libc::SYS_rt_sigaction, OneOf(0, &[
        libc::SIGABRT as u32, libc::SIGSEGV as u32, libc::SIGBUS as u32,
    ])),
    allow(libc::SYS_gettid, Always),
    allow(libc::SYS_tgkill, OneOf(2, &[libc::SIGABRT as u32])),
    // Time, where the host's clock can't be read without a call.
    allow(libc::SYS_clock_gettime, Always),
];

/// Beside them, where the guest has several vCPUs. The threads begin and end with their machine, and make no other calls
/// than `KVM_RUN` and these.
#[rustfmt::skip]
pub const FOR_THREADS: &[Allowed] = &[
    // A thread for a vCPU, and no other: all flags that make it a thread, no storage of its own.
    allow(libc::SYS_clone, Exactly(&[(0, secondaries::FLAGS), (2, 0), (4, 0)])),
    // Handing the vCPU to its thread and back; the thread's end.
    allow(libc::SYS_futex, OneOf(1, &[
        (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u32, (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u32,
        libc::FUTEX_WAIT as u32,
    ])),
    // The thread calls the main thread, which calls the thread.
    allow(libc::SYS_tgkill, OneOf(2, &[libc::SIGIO as u32, secondaries::CALL as u32])),
    allow(libc::SYS_exit, Always),
    // By what the counters of vCPUs differ.
    allow(libc::SYS_ioctl, OneOf(1, &[write::<kvm_device_attr>(0xe2)])), // KVM_GET_DEVICE_ATTR
];

/// Those of `fork::fork_sibling`.
pub const FORK_FLAGS: u64 = (libc::CLONE_PARENT | libc::SIGCHLD) as u64;

/// The one that is made most often comes first: they are compared in this order.
const KVM_CALLS: &[u32] = &[
    none(0x80),                                 // KVM_RUN
    write::<kvm_irq_level>(0x61),               // KVM_IRQ_LINE
    none(0x01),                                 // KVM_CREATE_VM
    none(0x03),                                 // KVM_CHECK_EXTENSION
    none(0x04),                                 // KVM_GET_VCPU_MMAP_SIZE
    both::<kvm_msr_list>(0x02),                 // KVM_GET_MSR_INDEX_LIST
    none(0x41),                                 // KVM_CREATE_VCPU
    write::<kvm_userspace_memory_region>(0x46), // KVM_SET_USER_MEMORY_REGION
    write::<kvm_dirty_log>(0x42),               // KVM_GET_DIRTY_LOG
    none(0x47),                                 // KVM_SET_TSS_ADDR
    none(0x60),                                 // KVM_CREATE_IRQCHIP
    both::<kvm_irqchip>(0x62),                  // KVM_GET_IRQCHIP
    read::<kvm_irqchip>(0x63),                  // KVM_SET_IRQCHIP
    write::<kvm_clock_data>(0x7b),              // KVM_SET_CLOCK
    read::<kvm_clock_data>(0x7c),               // KVM_GET_CLOCK
    read::<kvm_regs>(0x81),                     // KVM_GET_REGS
    write::<kvm_regs>(0x82),                    // KVM_SET_REGS
    read::<kvm_sregs>(0x83),                    // KVM_GET_SREGS
    write::<kvm_sregs>(0x84),                   // KVM_SET_SREGS
    both::<kvm_msrs>(0x88),                     // KVM_GET_MSRS
    write::<kvm_msrs>(0x89),                    // KVM_SET_MSRS
    read::<kvm_lapic_state>(0x8e),              // KVM_GET_LAPIC
    write::<kvm_lapic_state>(0x8f),             // KVM_SET_LAPIC
    write::<kvm_cpuid2>(0x90),                  // KVM_SET_CPUID2
    read::<kvm_mp_state>(0x98),                 // KVM_GET_MP_STATE
    write::<kvm_mp_state>(0x99),                // KVM_SET_MP_STATE
    read::<kvm_vcpu_events>(0x9f),              // KVM_GET_VCPU_EVENTS
    write::<kvm_vcpu_events>(0xa0),             // KVM_SET_VCPU_EVENTS
    read::<kvm_debugregs>(0xa1),                // KVM_GET_DEBUGREGS
    write::<kvm_debugregs>(0xa2),               // KVM_SET_DEBUGREGS
    read::<kvm_xsave>(0xa4),                    // KVM_GET_XSAVE
    write::<kvm_xsave>(0xa5),                   // KVM_SET_XSAVE
    read::<kvm_xcrs>(0xa6),                     // KVM_GET_XCRS
    write::<kvm_xcrs>(0xa7),                    // KVM_SET_XCRS
    none(0xad),                                 // KVM_KVMCLOCK_CTRL
    write::<kvm_device_attr>(0xe1),             // KVM_SET_DEVICE_ATTR
    write::<kvm_device_attr>(0xe3),             // KVM_HAS_DEVICE_ATTR
];

// The kernel's encoding of ioctl numbers: direction, size of the argument, type, number.
const fn number(direction: u32, nr: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | KVMIO << 8 | nr
}

const fn none(nr: u32) -> u32 {
    number(0, nr, 0)
}

const fn write<T>(nr: u32) -> u32 {
    number(1, nr, size_of::<T>())
}

const fn read<T>(nr: u32) -> u32 {
    number(2, nr, size_of::<T>())
}

const fn both<T>(nr: u32) -> u32 {
    number(3, nr, size_of::<T>())
}
