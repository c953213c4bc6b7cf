//! Puts kernel, initramfs, command line and tables into fresh guest RAM.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linux_loader::loader::bootparam::{boot_e820_entry, boot_params};
use linux_loader::loader::{Elf, KernelLoader};
use vm_memory::{ByteValued, Bytes, GuestAddress, GuestMemoryError};

use crate::boot::acpi::{TABLES_END, TABLES_START};
use crate::memory::{GuestRam, Memory};

mod acpi;
pub mod registers;

/// Zero page.
pub const BOOT_PARAMS: u64 = 0x7000;
const COMMAND_LINE: u64 = 0x2_0000;
/// What the kernel accepts on x86.
const COMMAND_LINE_MAX: usize = 2047;
/// Start of the extended BIOS data area of PCs; RAM below it is usable.
const LOW_RAM_END: u64 = 0x9_fc00;
const HIGH_RAM_START: u64 = 0x10_0000;

const E820_RAM: u32 = 1;
const E820_RESERVED: u32 = 2;

/// Only `console` and `panic` change what works; `reboot=a` makes an orderly reset tell itself from a triple fault. The last
/// three let an idle guest sleep: comparing clocks, looking for stuck processors (a stopped guest is one) and compacting
/// memory for later woke it several times a second.
const BASE_COMMAND_LINE: &str = "console=ttyS0 reboot=a panic=-1 quiet \
    tsc=reliable nowatchdog sysctl.vm.compaction_proactiveness=0";

/// Interrupts go to the first vCPU, whose exits need no other thread.
const SEVERAL_VCPUS: &str = " irqaffinity=0";

/// Bytes of the initramfs that are copied at once.
const COPY_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("{what} {} can't be read: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("Kernel {} is not a loadable 64-bit vmlinux: {reason}", path.display())]
    Kernel { path: PathBuf, reason: String },
    #[error("Kernel, initramfs and tables need more than the {bytes} bytes of guest memory")]
    DoesNotFit { bytes: u64 },
    #[error("Kernel command line of {length} bytes is over the limit of {COMMAND_LINE_MAX}")]
    CommandLine { length: usize },
    #[error("Guest memory can't be written: {0}")]
    Memory(#[from] GuestMemoryError),
}

/// What to boot.
pub struct Payload<'a> {
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    pub extra_command_line: &'a str,
    pub vcpus: u8,
    pub virtio_devices: usize,
}

/// Loads everything; the kernel's entry point.
pub fn load(ram: &GuestRam, payload: &Payload<'_>) -> Result<u64, BootError> {
    let memory = ram.memory();
    let low_end = ram.regions()[0].bytes;
    let (entry, kernel_end) = load_kernel(memory, payload.kernel)?;
    let initrd = load_initrd(memory, payload.initrd, kernel_end, low_end)?;
    let command_line = write_command_line(memory, payload)?;
    memory.write_slice(
        &acpi::tables(payload.vcpus, payload.virtio_devices),
        GuestAddress(TABLES_START),
    )?;
    registers::write_tables(memory)?;

    let mut params = boot_params {
        acpi_rsdp_addr: TABLES_START,
        ..Default::default()
    };
    params.hdr.type_of_loader = 0xff; // none of the known ones
    params.hdr.boot_flag = 0xaa55;
    params.hdr.header = u32::from_le_bytes(*b"HdrS");
    params.hdr.kernel_alignment = 0x0100_0000;
    params.hdr.cmd_line_ptr = COMMAND_LINE as u32;
    params.hdr.cmdline_size = command_line;
    params.hdr.ramdisk_image = initrd.start as u32;
    params.hdr.ramdisk_size = (initrd.end - initrd.start) as u32;
    describe_memory(&mut params, ram);
    memory.write_slice(params.as_slice(), GuestAddress(BOOT_PARAMS))?;
    Ok(entry)
}

fn load_kernel(memory: &Memory, path: &Path) -> Result<(u64, u64), BootError> {
    let mut file = open("Kernel", path)?;
    let loaded =
        Elf::load(memory, None, &mut file, Some(GuestAddress(HIGH_RAM_START))).map_err(|error| BootError::Kernel {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    Ok((loaded.kernel_load.0, loaded.kernel_end))
}

/// As high as it fits, page-aligned, where the kernel does not run into it while it grows.
fn load_initrd(memory: &Memory, path: &Path, kernel_end: u64, low_end: u64) -> Result<std::ops::Range<u64>, BootError> {
    let failed = |source| BootError::File {
        what: "Initramfs",
        path: path.to_owned(),
        source,
    };
    let file = open("Initramfs", path)?;
    let length = file.metadata().map_err(failed)?.len();
    let start = low_end
        .checked_sub(length)
        .map(|start| start & !0xfff)
        .filter(|start| *start > kernel_end);
    let start = start.ok_or(BootError::DoesNotFit { bytes: low_end })?;
    let mut buffer = vec![0; COPY_BYTES.min(length as usize)];
    let mut offset = 0;
    while offset < length {
        let piece = buffer.len().min((length - offset) as usize);
        file.read_exact_at(&mut buffer[..piece], offset).map_err(failed)?;
        memory.write_slice(&buffer[..piece], GuestAddress(start + offset))?;
        offset += piece as u64;
    }
    Ok(start..start + length)
}

fn write_command_line(memory: &Memory, payload: &Payload<'_>) -> Result<u32, BootError> {
    let for_several = if payload.vcpus > 1 { SEVERAL_VCPUS } else { "" };
    let line = format!("{BASE_COMMAND_LINE}{for_several} {}", payload.extra_command_line);
    let line = line.trim();
    if line.len() > COMMAND_LINE_MAX {
        return Err(BootError::CommandLine { length: line.len() });
    }
    memory.write_slice(line.as_bytes(), GuestAddress(COMMAND_LINE))?;
    memory.write_obj(0u8, GuestAddress(COMMAND_LINE + line.len() as u64))?;
    Ok(line.len() as u32)
}

fn describe_memory(params: &mut boot_params, ram: &GuestRam) {
    let mut entries = vec![(0, LOW_RAM_END, E820_RAM), (TABLES_START, TABLES_END, E820_RESERVED)];
    for region in ram.regions() {
        let end = region.guest + region.bytes;
        entries.push((region.guest.max(HIGH_RAM_START), end, E820_RAM));
    }
    params.e820_entries = entries.len() as u8;
    for (slot, (start, end, kind)) in params.e820_table.iter_mut().zip(entries) {
        *slot = boot_e820_entry {
            addr: start,
            size: end - start,
            r#type: kind,
        };
    }
}

fn open(what: &'static str, path: &Path) -> Result<File, BootError> {
    File::open(path).map_err(|source| BootError::File {
        what,
        path: path.to_owned(),
        source,
    })
}
