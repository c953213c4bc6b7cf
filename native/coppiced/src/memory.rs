//! Memory of the machine, and of one VMM process.

use std::cell::Cell;
use std::fs;
use std::time::Instant;

use serde::Serialize;

use crate::defaults::{CHILD_BYTES, MEMORY_READING_AGE};
use crate::errors::{FaultDomain, Spec, Typed};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// What the kernel keeps for each thread's stack on x86-64.
const KERNEL_STACK_BYTES: u64 = 16 * KIB;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error(
        "This host has {} MiB of memory left, {} MiB of them in reserve; this needs {} MiB",
        .available / MIB, .reserve / MIB, .wanted.div_ceil(MIB)
    )]
    Full { available: u64, reserve: u64, wanted: u64 },
    #[error("This host runs {count} sandboxes, its limit")]
    TooMany { count: usize },
    #[error("{path} can't be read: {reason}")]
    Unreadable { path: String, reason: String },
}

impl Typed for MemoryError {
    fn spec(&self) -> Spec {
        match self {
            MemoryError::Full { .. } | MemoryError::TooMany { .. } => Spec::new("HOST_FULL", FaultDomain::Host)
                .retryable()
                .remedy("Close sandboxes, drop checkpoints, or use a host with more memory."),
            MemoryError::Unreadable { .. } => Spec::new("INTERNAL", FaultDomain::Host),
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineMemory {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

pub fn machine_memory() -> Result<MachineMemory, MemoryError> {
    let text = read("/proc/meminfo")?;
    let field = |name| kib_field(&text, name).ok_or_else(|| unreadable("/proc/meminfo", format!("no {name}")));
    Ok(MachineMemory {
        total_bytes: field("MemTotal:")?,
        available_bytes: field("MemAvailable:")?,
    })
}

/// Refuses sandboxes that the machine has no memory for. A guest's memory is only used as it is written, so this is a
/// judgement of now, not a guarantee; the reserve is what keeps the machine alive when it was wrong.
pub struct Admission {
    reserve: Option<u64>,
    reading: Cell<Option<(Instant, MachineMemory)>>,
}

impl Admission {
    pub fn new(reserve: Option<u64>) -> Self {
        Admission {
            reserve,
            reading: Cell::new(None),
        }
    }

    pub fn admit_boot(&self, guest_bytes: u64) -> Result<(), MemoryError> {
        self.reading.set(None);
        self.admit(guest_bytes)
    }

    pub fn admit_child(&self) -> Result<(), MemoryError> {
        self.admit(CHILD_BYTES)
    }

    fn admit(&self, wanted: u64) -> Result<(), MemoryError> {
        let (read_at, mut memory) = match self.reading.get() {
            Some((read_at, memory)) if read_at.elapsed() < MEMORY_READING_AGE => (read_at, memory),
            _ => (Instant::now(), machine_memory()?),
        };
        let reserve = self
            .reserve
            .unwrap_or_else(|| (memory.total_bytes / 16).clamp(64 * MIB, 1024 * MIB));
        let available = memory.available_bytes;
        if available < reserve.saturating_add(wanted) {
            return Err(MemoryError::Full {
                available,
                reserve,
                wanted,
            });
        }
        // What was admitted since the reading is not used yet: count it.
        memory.available_bytes -= wanted;
        self.reading.set(Some((read_at, memory)));
        Ok(())
    }
}

/// Result of `memory.usage`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub private_bytes: u64,
    pub total_bytes: u64,
}

/// What one process adds to the host.
///
/// `private_bytes`: memory that only this process has (smaps_rollup: private dirty and swapped pages), which is what its
/// guest wrote since the checkpoint it came from, and the VMM's own few pages. `total_bytes`: that, and its page tables
/// (`VmPTE`) and kernel stacks. Not counted, because the kernel does not say it per process: KVM's nested page tables
/// and structures, and the sockets' buffers. Pages of the base and of the checkpoints above it belong to those.
pub fn process_usage(pid: i32) -> Result<Usage, MemoryError> {
    let (rollup_path, status_path) = (format!("/proc/{pid}/smaps_rollup"), format!("/proc/{pid}/status"));
    let (rollup, status) = (read(&rollup_path)?, read(&status_path)?);
    let of_rollup = |name| kib_field(&rollup, name).unwrap_or(0);
    let private_bytes = of_rollup("Private_Dirty:").min(of_rollup("Anonymous:")) + of_rollup("SwapPss:");
    let threads = number_field(&status, "Threads:").unwrap_or(1);
    let page_tables = kib_field(&status, "VmPTE:").unwrap_or(0);
    Ok(Usage {
        private_bytes,
        total_bytes: private_bytes + page_tables + threads * KERNEL_STACK_BYTES,
    })
}

fn read(path: &str) -> Result<String, MemoryError> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error.to_string()))
}

fn unreadable(path: &str, reason: String) -> MemoryError {
    MemoryError::Unreadable {
        path: path.to_owned(),
        reason,
    }
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    number_field(text, name)?.checked_mul(KIB)
}

fn number_field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_memory_of_this_machine_is_plausible() {
        let memory = machine_memory().unwrap();
        assert!(memory.available_bytes <= memory.total_bytes && memory.total_bytes > MIB);
    }

    #[test]
    fn admission_given_a_reserve_above_the_machine_refuses() {
        let admission = Admission::new(Some(u64::MAX));
        assert!(matches!(admission.admit_child(), Err(MemoryError::Full { .. })));
    }

    #[test]
    fn admission_counts_what_it_admitted_since_it_last_looked() {
        let available = machine_memory().unwrap().available_bytes;
        let admission = Admission::new(Some(0));
        assert!(admission.admit(available / 2).is_ok());
        assert!(matches!(
            admission.admit(available * 2 / 3),
            Err(MemoryError::Full { .. })
        ));
    }

    #[test]
    fn usage_of_this_process_counts_more_than_its_private_memory() {
        let usage = process_usage(std::process::id() as i32).unwrap();
        assert!(usage.private_bytes > 0 && usage.total_bytes > usage.private_bytes);
    }
}
