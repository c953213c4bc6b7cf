//! Registers and tables with which the kernel's 64-bit entry point expects to be entered.

use kvm_bindings::{kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::boot::BOOT_PARAMS;
use crate::memory::Memory;

const GDT: u64 = 0x500;
const PAGE_MAP: u64 = 0x9000;
const PAGE_DIRECTORY_POINTERS: u64 = 0xa000;
const PAGE_DIRECTORY: u64 = 0xb000;
const STACK: u64 = 0x8ff0;

const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;
const TASK_SELECTOR: u16 = 0x20;

const PRESENT_WRITABLE: u64 = 0b11;
const LARGE_PAGE: u64 = 1 << 7;
const LARGE_PAGE_BYTES: u64 = 2 << 20;

const CR0_PROTECTED: u64 = 1;
const CR0_EXTENSION_TYPE: u64 = 1 << 4;
const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LONG_MODE: u64 = 1 << 8 | 1 << 10;
const FLAGS_RESERVED: u64 = 1 << 1;

const MSR_MISC_ENABLE: u32 = 0x1a0;
const MISC_ENABLE_FAST_STRING: u64 = 1;
const MSR_MTRR_DEFAULT: u32 = 0x2ff;
/// MTRRs on, everything write-back.
const MTRR_WRITE_BACK: u64 = 1 << 11 | 6;

/// Writes the descriptor table and an identity map of the first GiB, which holds the kernel.
pub fn write_tables(memory: &Memory) -> Result<(), GuestMemoryError> {
    let descriptors: [u64; 5] = [
        0,
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x008f_8b00_0000_ffff,
    ];
    for (index, descriptor) in descriptors.into_iter().enumerate() {
        memory.write_obj(descriptor, GuestAddress(GDT + index as u64 * 8))?;
    }
    memory.write_obj(PAGE_DIRECTORY_POINTERS | PRESENT_WRITABLE, GuestAddress(PAGE_MAP))?;
    memory.write_obj(PAGE_DIRECTORY | PRESENT_WRITABLE, GuestAddress(PAGE_DIRECTORY_POINTERS))?;
    for index in 0..512 {
        let entry = (index * LARGE_PAGE_BYTES) | PRESENT_WRITABLE | LARGE_PAGE;
        memory.write_obj(entry, GuestAddress(PAGE_DIRECTORY + index * 8))?;
    }
    Ok(())
}

pub fn general(entry: u64) -> kvm_regs {
    kvm_regs {
        rip: entry,
        rsi: BOOT_PARAMS,
        rsp: STACK,
        rbp: STACK,
        rflags: FLAGS_RESERVED,
        ..Default::default()
    }
}

/// Puts a fresh vCPU's special registers into flat 64-bit mode.
pub fn enter_long_mode(sregs: &mut kvm_sregs) {
    let code = segment(CODE_SELECTOR, 0xb);
    let data = segment(DATA_SELECTOR, 0x3);
    sregs.cs = kvm_segment { l: 1, db: 0, ..code };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.tr = kvm_segment {
        s: 0,
        db: 0,
        ..segment(TASK_SELECTOR, 0xb)
    };
    sregs.gdt.base = GDT;
    sregs.gdt.limit = 5 * 8 - 1;
    sregs.cr0 = CR0_PROTECTED | CR0_EXTENSION_TYPE | CR0_PAGING;
    sregs.cr3 = PAGE_MAP;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LONG_MODE;
}

pub fn msrs() -> Vec<kvm_msr_entry> {
    [
        (MSR_MISC_ENABLE, MISC_ENABLE_FAST_STRING),
        (MSR_MTRR_DEFAULT, MTRR_WRITE_BACK),
    ]
    .into_iter()
    .map(|(index, data)| kvm_msr_entry {
        index,
        data,
        ..Default::default()
    })
    .collect()
}

fn segment(selector: u16, type_: u8) -> kvm_segment {
    kvm_segment {
        selector,
        type_,
        limit: 0xffff_ffff,
        present: 1,
        s: 1,
        db: 1,
        g: 1,
        ..Default::default()
    }
}
