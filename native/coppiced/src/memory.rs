//! Memory of the machine, and whether there is enough for one sandbox more.

use std::cell::Cell;
use std::fs;
use std::time::Instant;

use serde::Serialize;

use crate::defaults::{CHILD_BYTES, MEMORY_READING_AGE};
use crate::errors::{FaultDomain, Spec, Typed};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

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
            MemoryError::Unreadable { .. } => Spec::new("INTERNAL", FaultDomain::Host).retryable(),
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

pub fn read(path: &str) -> Result<String, MemoryError> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error.to_string()))
}

pub fn unreadable(path: &str, reason: String) -> MemoryError {
    MemoryError::Unreadable {
        path: path.to_owned(),
        reason,
    }
}

pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    number_field(text, name)?.checked_mul(KIB)
}

pub fn number_field(text: &str, name: &str) -> Option<u64> {
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
}
