//! The guest: what a kernel does in its first milliseconds, in a few thousand instructions.
//!
//! It enters long mode by itself, takes exceptions, changes its own page tables, runs a user program that makes system
//! calls and faults, and sleeps until its timer wakes it. It folds what it sees into a sum that the host computes too.

use std::arch::global_asm;

/// Where the code is copied to.
pub const CODE: u64 = 0x1_0000;
/// The second 256 bytes: the part in long mode.
const LONG: u64 = CODE + 0x100;
/// Top-level page table and what hangs below it.
pub const PML4: u64 = 0x1000;
pub const PDPT: u64 = 0x2000;
pub const DIRECTORY: u64 = 0x3000;
pub const TABLE: u64 = 0x4000;
pub const GDT: u64 = 0x5000;
pub const GDT_POINTER: u64 = 0x5100;
pub const IDT_POINTER: u64 = 0x5110;
pub const IDT: u64 = 0x6000;
pub const TSS: u64 = 0x7000;
/// First byte above it.
pub const KERNEL_STACK: u64 = 0x9000;
pub const USER_STACK: u64 = 0xb000;
/// Two frames that hold different values, and the page that shows one after the other.
pub const FRAMES: [u64; 2] = [0xc000, 0xd000];
pub const FRAME_VALUES: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];
pub const WINDOW: u64 = 0xe000;
/// Shows the local APIC.
pub const APIC_WINDOW: u64 = 0xf000;

/// The stage that begins.
pub const STAGE_PORT: u16 = 0x510;
/// Low, then high half of the sum: the end.
pub const RESULT_PORT: u16 = 0x514;

pub const STAGES: [&str; 7] = [
    "entry into long mode",
    "arithmetic in kernel mode",
    "exceptions",
    "changes of page tables",
    "system calls from user mode",
    "a page fault from user mode",
    "a timer interrupt",
];

const ARITHMETIC_ROUNDS: u64 = 2000;
const EXCEPTION_ROUNDS: u64 = 100;
const REMAP_ROUNDS: u64 = 100;
const SYSCALL_ROUNDS: u64 = 200;

/// What the guest's sum must be.
pub fn expected_sum() -> u64 {
    let mut sum: u64 = 0;
    let mut fold = |value: u64| sum = sum.wrapping_mul(31).wrapping_add(value);
    for round in (1..=ARITHMETIC_ROUNDS).rev() {
        fold(round);
    }
    for _ in 0..EXCEPTION_ROUNDS {
        fold(3);
    }
    for round in 0..REMAP_ROUNDS {
        fold(FRAME_VALUES[usize::from(round % 2 == 1)]);
    }
    for round in (1..=SYSCALL_ROUNDS).rev() {
        fold(round + 7);
    }
    fold(KERNEL_STACK - 0x1000);
    // Present, read, from user mode.
    fold(5);
    fold(32);
    sum
}

unsafe extern "C" {
    static coppice_probe_guest: u8;
    static coppice_probe_guest_end: u8;
    static coppice_probe_breakpoint: u8;
    static coppice_probe_page_fault: u8;
    static coppice_probe_timer: u8;
}

/// The code, and where its handlers are in the guest's memory.
pub struct Guest {
    pub code: &'static [u8],
    pub breakpoint: u64,
    pub page_fault: u64,
    pub timer: u64,
}

pub fn guest() -> Guest {
    let start = &raw const coppice_probe_guest;
    let address = |label: *const u8| CODE + (label as u64 - start as u64);
    let length = &raw const coppice_probe_guest_end as usize - start as usize;
    // SAFETY: the two symbols bound one block of this program's read-only data, defined below; start comes first.
    let code = unsafe { std::slice::from_raw_parts(start, length) };
    Guest {
        code,
        breakpoint: address(&raw const coppice_probe_breakpoint),
        page_fault: address(&raw const coppice_probe_page_fault),
        timer: address(&raw const coppice_probe_timer),
    }
}

// r15 is the sum. The code does not run where it was linked: addresses are relative, or reckoned from CODE.
global_asm!(
    ".pushsection .rodata.coppice_probe, \"a\", @progbits",
    ".globl coppice_probe_guest, coppice_probe_guest_end",
    ".globl coppice_probe_breakpoint, coppice_probe_page_fault, coppice_probe_timer",
    ".balign 256",
    ".code32",
    "coppice_probe_guest:",
    "    lgdt [{gdt_pointer}]",
    "    mov dx, {stage}",
    "    mov eax, 0",
    "    out dx, eax",
    "    mov eax, cr4",
    "    or eax, 0x620", // PAE, OSFXSR, OSXMMEXCPT
    "    mov cr4, eax",
    "    mov eax, {pml4}",
    "    mov cr3, eax",
    "    mov ecx, 0xc0000080", // EFER: long mode, syscall
    "    rdmsr",
    "    or eax, 0x101",
    "    wrmsr",
    "    mov eax, cr0",
    "    or eax, 0x80010023", // PG, WP, NE, MP, PE
    "    mov cr0, eax",
    "    push 8",
    "    push {long}",
    "    retf",
    ".balign 256",
    ".code64", // at LONG
    "    mov eax, 0x10",
    "    mov ds, eax",
    "    mov es, eax",
    "    mov ss, eax",
    "    mov esp, {kernel_stack}",
    "    lidt [{idt_pointer}]",
    "    mov eax, 0x28",
    "    ltr ax",
    "    mov ecx, 0xc0000081", // STAR: kernel segments from 0x08, user segments from 0x18 (ss) and 0x20 (cs)
    "    xor eax, eax",
    "    mov edx, 0x00100008",
    "    wrmsr",
    "    mov ecx, 0xc0000082", // LSTAR
    "    lea rax, [rip + .Lsyscall]",
    "    xor edx, edx",
    "    wrmsr",
    "    mov ecx, 0xc0000084", // the flags that a system call clears: interrupts
    "    mov eax, 0x200",
    "    wrmsr",
    "    xor r15d, r15d",
    // Arithmetic: stack, flags, string and wide multiplication, SSE, and an intercepted instruction now and then.
    "    mov dx, {stage}",
    "    mov eax, 1",
    "    out dx, eax",
    "    mov r14d, {arithmetic}",
    "2:",
    "    pushfq",
    "    push r14",
    "    call .Lfold_stack",
    "    pop rax",
    "    popfq",
    "    movq xmm0, r14",
    "    cvtsi2sd xmm1, r14",
    "    mulsd xmm1, xmm1",
    "    test r14d, 63",
    "    jnz 3f",
    "    xor eax, eax",
    "    cpuid",
    "    mov edi, {frame0} + 0x100",
    "    mov ecx, 64",
    "    xor eax, eax",
    "    rep stosq",
    "3:",
    "    dec r14d",
    "    jnz 2b",
    // Exceptions.
    "    mov dx, {stage}",
    "    mov eax, 2",
    "    out dx, eax",
    "    mov r14d, {exceptions}",
    "2:",
    "    int3",
    "    dec r14d",
    "    jnz 2b",
    // Page tables: the window shows one frame, then the other.
    "    mov dx, {stage}",
    "    mov eax, 3",
    "    out dx, eax",
    "    xor r14d, r14d",
    "2:",
    "    mov eax, r14d",
    "    and eax, 1",
    "    shl eax, 12",
    "    add eax, {frame0} + 3",
    "    mov [{table} + {window} / 4096 * 8], rax",
    "    invlpg [{window}]",
    "    mov rdi, [{window}]",
    "    call .Lfold",
    "    inc r14d",
    "    cmp r14d, {remaps}",
    "    jne 2b",
    // User mode.
    "    mov dx, {stage}",
    "    mov eax, 4",
    "    out dx, eax",
    "    push 0x1b",
    "    push {user_stack}",
    "    push 2",
    "    push 0x23",
    "    lea rax, [rip + .Luser]",
    "    push rax",
    "    iretq",
    ".Luser:",
    "    mov r14d, {syscalls}",
    "2:",
    "    lea rdi, [r14 + 7]",
    "    syscall",
    "    dec r14d",
    "    jnz 2b",
    "    mov edi, 0", // the last system call: the stage
    "    syscall",
    "    mov rax, [{kernel_stack} - 0x1000]", // not the user's: faults
    "    ud2",
    ".Lsyscall:",
    "    test edi, edi",
    "    jz 3f",
    "    call .Lfold_user",
    "    sysretq",
    "3:",
    "    mov dx, {stage}",
    "    mov eax, 5",
    "    out dx, eax",
    "    sysretq",
    // The stack is the user's here: a call may use it, as it is mapped for both.
    ".Lfold_user:",
    ".Lfold:",
    "    imul r15, r15, 31",
    "    add r15, rdi",
    "    ret",
    ".Lfold_stack:",
    "    mov rdi, [rsp + 8]",
    "    jmp .Lfold",
    ".balign 16",
    "coppice_probe_breakpoint:",
    "    push rdi",
    "    mov edi, 3",
    "    call .Lfold",
    "    pop rdi",
    "    iretq",
    ".balign 16",
    "coppice_probe_page_fault:",
    "    mov rdi, cr2",
    "    call .Lfold",
    "    pop rdi", // the error code
    "    call .Lfold",
    // A timer: the local APIC of this processor.
    "    mov dx, {stage}",
    "    mov eax, 6",
    "    out dx, eax",
    "    mov dword ptr [{apic} + 0xf0], 0x1ff", // enabled, spurious vector 255
    "    mov dword ptr [{apic} + 0x3e0], 0xb",  // divide by one
    "    mov dword ptr [{apic} + 0x320], 32",   // one shot, vector 32
    "    mov dword ptr [{apic} + 0x380], 100000",
    "    sti",
    "2:",
    "    hlt",
    "    jmp 2b",
    ".balign 16",
    "coppice_probe_timer:",
    "    mov edi, 32",
    "    call .Lfold",
    "    mov dword ptr [{apic} + 0xb0], 0", // end of interrupt
    "    mov dx, {result}",
    "    mov eax, r15d",
    "    out dx, eax",
    "    mov rax, r15",
    "    shr rax, 32",
    "    out dx, eax",
    "2:",
    "    hlt",
    "    jmp 2b",
    "coppice_probe_guest_end:",
    ".popsection",
    long = const LONG,
    stage = const STAGE_PORT,
    result = const RESULT_PORT,
    pml4 = const PML4,
    table = const TABLE,
    gdt_pointer = const GDT_POINTER,
    idt_pointer = const IDT_POINTER,
    kernel_stack = const KERNEL_STACK,
    user_stack = const USER_STACK,
    frame0 = const FRAMES[0],
    window = const WINDOW,
    apic = const APIC_WINDOW,
    arithmetic = const ARITHMETIC_ROUNDS,
    exceptions = const EXCEPTION_ROUNDS,
    remaps = const REMAP_ROUNDS,
    syscalls = const SYSCALL_ROUNDS,
);
